"""Choosing an embedder: `init` offers and tries it, settings keep it, a key is never shown."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from commanding import LOGIN, Line
from embedding_server import KEY, EmbeddingServer, running

from ralph.config import Settings, load, store
from ralph.errors import BadSetting


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with running() as started:
        yield started


@pytest.fixture
def ralph(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Line:
    monkeypatch.chdir(tmp_path)
    return Line(capsys, monkeypatch)


@pytest.fixture
def served(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> EmbeddingServer:
    """The server, named by the environment of the commands."""
    monkeypatch.setenv("RALPH_OLLAMA_URL", server.url)
    monkeypatch.setenv("RALPH_OPENAI_BASE_URL", server.url)
    return server


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who looks at a terminal."""
    monkeypatch.setattr("ralph.doors.cli.commands.project.is_terminal", lambda stream: True)


def chosen(folder: Path) -> str:
    file = folder / ".ralph" / "rag_config.json"
    return str(json.loads(file.read_text())["embedder"]) if file.exists() else "none written"


@pytest.mark.parametrize("name", ["static", "ollama", "openai", "none"])
def test_init_tries_the_embedder_and_writes_the_choice_down(
    ralph: Line, served: EmbeddingServer, tmp_path: Path, name: str
) -> None:
    ran = ralph.well("init", tmp_path / "p", "--embedder", name)
    assert f"embedder is now {name}" in ran.out
    assert chosen(tmp_path / "p") == name
    told = ralph.well("--project", tmp_path / "p", "config", "embedder").out
    assert told == f"{name}\n"
    assert ralph.well("init", tmp_path / "p", "--json").json["embedder"] is None
    assert chosen(tmp_path / "p") == name


def test_init_refuses_an_embedder_that_does_not_work_and_makes_nothing(
    ralph: Line, served: EmbeddingServer, tmp_path: Path
) -> None:
    served.digests.clear()
    ran = ralph("init", tmp_path / "p", "--embedder", "ollama")
    assert ran.code == 1
    missing = "nomic-embed-text not found. Run: ollama pull nomic-embed-text"
    assert ran.complaint == f"ralph: {missing}"
    assert not (tmp_path / "p").exists()
    served.key = KEY
    assert "Check RALPH_OPENAI_API_KEY" in ralph("init", "--embedder", "openai").complaint
    assert ralph("init", tmp_path / "p", "--embedder", "magic").code == 2


def test_init_on_a_terminal_offers_an_ollama_that_answers(
    ralph: Line, served: EmbeddingServer, tmp_path: Path, person: None
) -> None:
    no = ralph.well("init", tmp_path / "no", stdin="n\n")
    assert "Use Ollama (nomic-embed-text) for embeddings? [y/N]" in no.out
    assert chosen(tmp_path / "no") == "none written"
    assert ralph.well("init", tmp_path / "nothing", stdin="\n").code == 0
    assert chosen(tmp_path / "nothing") == "none written"
    yes = ralph.well("init", tmp_path / "yes", stdin="y\n")
    assert "embedder is now ollama" in yes.out
    assert chosen(tmp_path / "yes") == "ollama"
    # Who has chosen is not asked again.
    assert "Use Ollama" not in ralph.well("init", tmp_path / "no").out


def test_init_on_a_terminal_without_an_ollama_asks_nothing(
    ralph: Line, served: EmbeddingServer, tmp_path: Path, person: None
) -> None:
    served.close()
    ran = ralph.well("init", tmp_path / "p")
    assert "Ollama" not in ran.out + ran.err


def test_init_tells_of_an_ollama_that_lacks_the_model(
    ralph: Line, served: EmbeddingServer, tmp_path: Path, person: None
) -> None:
    served.digests.clear()
    ran = ralph.well("init", tmp_path / "p")
    assert "Run: ollama pull nomic-embed-text, then: ralph init --embedder ollama" in ran.complaint
    assert chosen(tmp_path / "p") == "none written"


def test_init_without_a_terminal_looks_for_an_ollama_only_when_told_to(
    ralph: Line, served: EmbeddingServer, tmp_path: Path
) -> None:
    assert ralph.well("init", tmp_path / "p").err == ""
    assert served.requests == []
    ran = ralph.well("init", tmp_path / "p", "--embedder", "auto")
    assert ran.complaint == (
        "ralph: Ollama is running with nomic-embed-text; to use it: ralph init --embedder ollama"
    )
    assert chosen(tmp_path / "p") == "none written"


def test_doctor_tries_the_chosen_embedder(
    ralph: Line, served: EmbeddingServer, tmp_path: Path
) -> None:
    ralph.well("init", "--embedder", "ollama")
    ralph.record("auth", LOGIN)

    def embedder() -> dict[str, str]:
        checks = ralph("doctor", "--json").json["checks"]
        return next(one for one in checks if one["name"] == "embedder")

    assert embedder()["detail"].startswith("ollama:nomic-embed-text:0a109f422b47:256")
    served.digests.clear()
    assert embedder()["state"] == "problem"
    assert embedder()["todo"] == "Run: ollama pull nomic-embed-text"


# -- the key, and what a clone may not decide


def test_the_key_is_never_shown(
    ralph: Line, home: Path, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.chdir(project)
    assert ralph.well("config", "openai_api_key").out == "not set\n"
    said = ralph.well("config", "--user", "openai_api_key", KEY)
    assert ralph.well("config", "openai_api_key").out == "set\n"
    told = [said, ralph.well("config"), ralph.well("config", "--json"), ralph.well("doctor")]
    assert not any(KEY in one.out + one.err for one in told)
    config = load(home=home, environ={})
    assert config.settings.openai_api_key == KEY
    assert KEY not in repr(config)
    assert "openai_api_key='set'" in repr(config.settings)
    assert stat.S_IMODE((home / "config.json").stat().st_mode) == 0o600


def test_the_key_of_the_environment_is_taken_as_it_is(home: Path) -> None:
    for key in ("12345", "true", "null", KEY):
        loaded = load(home=home, environ={"RALPH_OPENAI_API_KEY": key})
        assert loaded.settings.openai_api_key == key
    assert load(home=home, environ={"OPENAI_API_KEY": KEY}).settings == Settings()


@pytest.mark.parametrize("key", ["openai_api_key", "openai_base_url", "ollama_url"])
def test_a_project_s_file_may_not_say_where_to_send_what(
    home: Path, project: Path, key: str
) -> None:
    file = project / ".ralph" / "rag_config.json"
    with pytest.raises(BadSetting, match="every clone gets that file") as caught:
        store(file, key, "http://evil.example/sk-secret")
    assert f"ralph config --user {key}" in str(caught.value)
    assert "sk-secret" not in str(caught.value)
    file.write_text(json.dumps({key: "http://evil.example/sk-secret"}))
    with pytest.raises(BadSetting, match="every clone gets that file") as caught:
        load(home=home, project_file=file, environ={})
    assert caught.value.where == str(file)
    assert "sk-secret" not in str(caught.value)


def test_a_bad_key_is_not_repeated(home: Path) -> None:
    home.mkdir()
    (home / "config.json").write_text('{"openai_api_key": 123456789}')
    with pytest.raises(BadSetting) as caught:
        load(home=home, environ={})
    assert "123456789" not in str(caught.value)
