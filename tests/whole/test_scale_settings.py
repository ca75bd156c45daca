"""Addresses and keys of servers: told to whom they are for, and to nobody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commanding import LOGIN, Line
from looping import Loop, calls, planned, stand_in
from postgres import PASSWORD, own_server
from qdrant_server import KEY, running
from remembering import files_holding

from ralph.clients import agent_environment
from ralph.config import Settings, load
from ralph.errors import BadSetting, IndexOff
from ralph.index.sync import open_index
from ralph.memory.ralph import open_ralph
from ralph.text.redact import redact

URL = "postgresql://ralph:tr0ub4dor@db.example:5432/ralph"


def test_what_is_secret_is_only_shown_as_set(ralph: Line, home: Path) -> None:
    ralph.well("config", "--user", "journal_url", URL)
    ralph.well("config", "--user", "qdrant_api_key", KEY)
    for words in (["config"], ["config", "--json"], ["config", "journal_url"]):
        said = ralph.well(*words)
        assert "tr0ub4dor" not in said.out + said.err
        assert KEY not in said.out + said.err
    assert ralph.well("config", "journal_url", "--json").json["value"] == "set"
    assert ralph.well("config", "qdrant_api_key", "--json").json["value"] == "set"
    settings = load(home=home).settings
    assert settings.journal_url == URL
    assert "tr0ub4dor" not in repr(settings)


@pytest.mark.parametrize("key", ["journal_url", "qdrant_url", "qdrant_api_key", "qdrant_binary"])
def test_a_projects_file_may_name_no_server(ralph: Line, project: Path, key: str) -> None:
    ran = ralph("config", key, URL if key == "journal_url" else "http://127.0.0.1:6333")
    assert ran.code == 1
    assert "cannot be set in a project's file" in ran.complaint
    file = project / ".ralph" / "rag_config.json"
    file.write_text(json.dumps({key: "http://10.0.0.7"}), encoding="utf-8")
    ran = ralph("recent", "--feature", "auth")
    assert ran.code == 1
    assert f"{key} cannot be set in a project's file" in ran.complaint
    assert "10.0.0.7" not in ran.complaint


def test_an_address_that_is_set_to_nothing_is_none(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", "")
    monkeypatch.setenv("RALPH_QDRANT_URL", "")
    ralph.record("auth", LOGIN)
    assert (project / ".ralph" / "db" / "memory" / "auth.jsonl").exists()


@pytest.mark.parametrize(
    "url",
    ["localhost/ralph", "http://db.example/ralph", "postgresql://ralph:tr0ub4dor@:x/ralph"],
)
def test_a_bad_address_of_the_journal_is_refused_in_one_line(
    ralph: Line, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_JOURNAL_URL", url)
    ran = ralph("recent", "--feature", "auth")
    assert ran.code == 1
    assert "journal_url is not the address of a PostgreSQL database" in ran.complaint
    assert "Write it as postgresql://USER:PASSWORD@HOST" in ran.complaint
    assert "tr0ub4dor" not in ran.complaint


def test_a_password_in_the_address_of_qdrant_is_refused_and_not_repeated(tmp_path: Path) -> None:
    settings = Settings(qdrant_url="http://ralph:tr0ub4dor@127.0.0.1:6333")
    index = open_index(settings, [tmp_path], home=tmp_path, scope=str)
    with pytest.raises(IndexOff, match="credentials in its URL") as refused:
        index.store.check()
    assert refused.value.todo == "Set RALPH_QDRANT_API_KEY instead."
    assert "tr0ub4dor" not in f"{refused.value} {index.where}"


def test_a_bad_address_of_qdrant_is_told_with_what_to_set(project: Path) -> None:
    for url in ("qdrant.example:6333", "ftp://qdrant.example", "http://", "http://host:port"):
        with (
            open_ralph(project, qdrant_url=url, embedder="none") as memory,
            pytest.raises(IndexOff, match="has no usable URL"),
        ):
            memory.store.index.store.check()


def test_an_agent_is_told_neither_address_nor_key() -> None:
    own = {
        "RALPH_JOURNAL_URL": URL,
        "RALPH_QDRANT_API_KEY": KEY,
        "RALPH_QDRANT_URL": "http://127.0.0.1:6333",
        "RALPH_HOME": "/h",
    }
    passed = agent_environment(environ=own, also=["RALPH_*", "*"])
    assert passed.keys() >= {"RALPH_HOME", "RALPH_QDRANT_URL"}
    assert not passed.keys() & {"RALPH_JOURNAL_URL", "RALPH_QDRANT_API_KEY"}


def test_our_own_servers_beside_an_agent_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    loop = Loop(planned(tmp_path / "project"))
    with running() as qdrant:
        qdrant.key = KEY
        monkeypatch.setenv("RALPH_JOURNAL_URL", database)
        monkeypatch.setenv("RALPH_QDRANT_URL", qdrant.url)
        monkeypatch.setenv("RALPH_QDRANT_API_KEY", KEY)
        stand_in("claude", loop.root.parent, monkeypatch)
        loop("claude", max_iterations=1)
    [call] = calls(loop.root.parent)
    told: dict[str, Any] = call["config"]["mcpServers"]["feature-memory"]["env"]
    assert told["RALPH_JOURNAL_URL"] == database
    assert told["RALPH_QDRANT_API_KEY"] == KEY
    assert call["mode"] == "0o600"
    assert "RALPH_JOURNAL_URL" not in call["environ"]
    assert "RALPH_QDRANT_API_KEY" not in call["environ"]
    everything = json.dumps([call["argv"], call["prompt"], call["environ"]])
    assert PASSWORD not in everything
    assert KEY not in everything


@pytest.mark.slow
def test_no_file_and_no_line_of_a_run_holds_the_password_or_the_key(
    ralph: Line, project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with own_server() as server, running() as qdrant:
        qdrant.key = KEY
        monkeypatch.setenv("RALPH_JOURNAL_URL", server.url)
        monkeypatch.setenv("RALPH_QDRANT_URL", qdrant.url)
        monkeypatch.setenv("RALPH_QDRANT_API_KEY", KEY)
        ran = [ralph("record", "--feature", "auth", "-", stdin=json.dumps(LOGIN))]
        ran.append(ralph("search", "login form"))
        qdrant.fail("500")
        server.stop()
        ran.append(ralph("record", "--feature", "auth", "-", stdin='{"summary": "while away"}'))
        for words in ("search away", "status", "doctor", "journal verify", "journal deliver"):
            ran.append(ralph(*words.split()))
            ran.append(ralph(*words.split(), "--json"))
        said = "".join(one.out + one.err for one in ran)
    assert "is not reached" in said
    assert PASSWORD not in said
    assert KEY not in said
    assert files_holding(project, PASSWORD, KEY) == []
    assert files_holding(home, PASSWORD, KEY) == []


def test_an_address_that_an_agent_prints_is_redacted() -> None:
    assert "tr0ub4dor" not in redact(f"psql {URL} -c 'select 1'")
    assert "tr0ub4dor" not in redact(f"RALPH_JOURNAL_URL={URL}")


def test_times_that_do_not_fit_are_refused() -> None:
    for key in ("journal_lock_timeout_s", "remember_budget_s"):
        with pytest.raises(BadSetting, match=r"it must be between 0 and 600"):
            load(home=Path("nowhere"), environ={}, given={key: -1})
    assert Settings().journal_url is Settings().qdrant_url is None
