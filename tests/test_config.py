"""Settings: which place wins, where each value came from, and what is said about a bad one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from places import DOCS

from ralph import disk, open_ralph
from ralph.config import KEYS, RULES, Config, Settings, clear, home_folder, load, store
from ralph.errors import BadSetting, JournalBusy


@pytest.fixture
def user_file(home: Path) -> Path:
    home.mkdir(exist_ok=True)
    return home / "config.json"


@pytest.fixture
def project_file(tmp_path: Path) -> Path:
    return tmp_path / "rag_config.json"


def origin(config: Config, key: str) -> str:
    (found,) = [setting for setting in config.origins if setting.key == key]
    assert found.value == getattr(config.settings, key)
    return found.origin


def test_without_any_file_everything_is_a_default(home: Path) -> None:
    config = load(home=home, environ={})
    assert config.settings == Settings()
    assert [setting.key for setting in config.origins] == list(KEYS)
    assert {setting.origin for setting in config.origins} == {"default"}
    assert not home.exists()


def test_each_place_wins_over_the_ones_before(
    home: Path, user_file: Path, project_file: Path
) -> None:
    def limit(environ: dict[str, str], **given: int) -> tuple[int, str]:
        config = load(home=home, project_file=project_file, environ=environ, given=given)
        return config.settings.search_limit, origin(config, "search_limit")

    assert limit({}) == (10, "default")
    user_file.write_text('{"search_limit": 11}')
    assert limit({}) == (11, str(user_file))
    project_file.write_text('{"search_limit": 12}')
    assert limit({}) == (12, str(project_file))
    environ = {"RALPH_SEARCH_LIMIT": "13"}
    assert limit(environ) == (13, "RALPH_SEARCH_LIMIT")
    assert limit(environ, search_limit=14) == (14, "given")


def test_places_mix_value_by_value(home: Path, user_file: Path, project_file: Path) -> None:
    user_file.write_text('{"min_score": 0.5, "stagnation_limit": 3}')
    project_file.write_text('{"stagnation_limit": 4}')
    config = load(home=home, project_file=project_file, environ={"RALPH_EMBEDDER": "none"})
    assert config.settings.min_score == 0.5
    assert config.settings.stagnation_limit == 4
    assert config.settings.embedder == "none"
    assert origin(config, "min_score") == str(user_file)
    assert origin(config, "stagnation_limit") == str(project_file)
    assert origin(config, "embedder") == "RALPH_EMBEDDER"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("RALPH_SEARCH_LIMIT", "7", 7),
        ("RALPH_MIN_SCORE", "0.25", 0.25),
        ("RALPH_MIN_SCORE", "1", 1.0),
        ("RALPH_EMBEDDER", "none", "none"),
        ("RALPH_REMEMBER_BUDGET_S", "0", 0.0),
    ],
)
def test_the_environment_is_read_as_what_the_setting_is(
    home: Path, name: str, text: str, value: object
) -> None:
    config = load(home=home, environ={name: text})
    key = name.removeprefix("RALPH_").lower()
    assert getattr(config.settings, key) == value
    assert type(getattr(config.settings, key)) is type(getattr(Settings(), key))
    assert origin(config, key) == name


def test_other_names_in_the_environment_are_none_of_our_business(home: Path) -> None:
    environ = {
        "RALPH_HOME": "/somewhere",
        "RALPH_DEBUG": "1",
        "RALPH_LAUREN": "polo",
        "SEARCH_LIMIT": "99",
        "ralph_search_limit": "98",
    }
    assert load(home=home, environ=environ).settings == Settings()


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("search_limit", 0, "between 1 and 20"),
        ("search_limit", 21, "between 1 and 20"),
        ("search_limit", "many", "search_limit"),
        ("search_limit", True, "search_limit"),
        ("search_limit", 1.5, "search_limit"),
        ("search_limit", None, "search_limit"),
        ("search_limit", [1], "search_limit"),
        ("min_score", -0.01, "between 0 and 1"),
        ("min_score", 1.01, "between 0 and 1"),
        ("min_score", float("nan"), "between 0 and 1"),
        ("embedder", "magic", "embedder"),
        ("embedder", 5, "embedder"),
        ("prompt_tokens", -1, "between 0 and 200000"),
        ("journal_lock_timeout_s", 1e9, "between 0 and 600"),
        ("journal_lock_timeout_s", float("nan"), "journal_lock_timeout_s"),
    ],
)
def test_a_bad_value_names_the_key_the_value_and_the_place(
    home: Path, project_file: Path, key: str, value: object, says: str
) -> None:
    project_file.write_text(json.dumps({key: value}))
    with pytest.raises(BadSetting) as caught:
        load(home=home, project_file=project_file, environ={})
    assert says in str(caught.value)
    assert f"{key} cannot be {value!r}" in str(caught.value)
    assert caught.value.where == str(project_file)
    with pytest.raises(BadSetting) as caught:
        load(home=home, environ={}, given={key: value})
    assert caught.value.where == "given"


def test_a_bad_value_in_the_environment_names_the_variable(home: Path) -> None:
    with pytest.raises(BadSetting, match="RALPH_SEARCH_LIMIT: search_limit cannot be 'lots'"):
        load(home=home, environ={"RALPH_SEARCH_LIMIT": "lots"})


def test_a_bad_value_is_told_even_where_a_stronger_place_has_a_good_one(
    home: Path, user_file: Path
) -> None:
    user_file.write_text('{"search_limit": "x"}')
    with pytest.raises(BadSetting, match="search_limit"):
        load(home=home, environ={}, given={"search_limit": 5})


def test_an_unknown_key_is_named_with_its_place(home: Path, user_file: Path) -> None:
    user_file.write_text('{"serch_limit": 5}')
    with pytest.raises(BadSetting, match="there is no setting 'serch_limit'") as caught:
        load(home=home, environ={})
    assert caught.value.where == str(user_file)
    user_file.unlink()
    with pytest.raises(BadSetting, match="there is no setting 'colour'"):
        load(home=home, environ={}, given={"colour": "red"})


@pytest.mark.parametrize(
    "content", [b"{", b"[1, 2]", b"5", b"null", b"\xff\xfe\x00", b"", b'{"a": 1} x', b"\0" * 50]
)
def test_a_file_that_is_no_settings_file_says_so(
    home: Path, user_file: Path, content: bytes
) -> None:
    user_file.write_bytes(content)
    with pytest.raises(BadSetting, match="Fix or delete it") as caught:
        load(home=home, environ={})
    assert caught.value.where == str(user_file)


def test_a_folder_in_the_place_of_the_file_says_so(home: Path) -> None:
    (home / "config.json").mkdir(parents=True)
    with pytest.raises(BadSetting, match="cannot be read"):
        load(home=home, environ={})


def test_a_setting_of_an_earlier_version_has_no_effect_and_warns_once(
    home: Path, user_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    user_file.write_text('{"embedding_max_chars": 2, "search_limit": 3}', encoding="utf-8")
    environ = {"RALPH_SUMMARY_TIMEOUT_S": "7"}
    for _ in range(2):
        config = load(home=home, environ=environ, given={"embed_batch": 5})
        assert config.settings.search_limit == 3
    assert sorted(record.getMessage() for record in caplog.records) == sorted(
        [
            f"{user_file}: embedding_max_chars has no effect: it is no longer a setting",
            "RALPH_SUMMARY_TIMEOUT_S: summary_timeout_s has no effect: use chat_timeout_s",
            "given: embed_batch has no effect: it is no longer a setting",
        ]
    )
    with pytest.raises(BadSetting, match="embedding_max_chars cannot be set"):
        store(user_file, "embedding_max_chars", "3")
    assert clear(user_file, "embedding_max_chars")


def test_a_byte_order_mark_does_no_harm(home: Path, user_file: Path) -> None:
    user_file.write_bytes(b'\xef\xbb\xbf{"search_limit": 9}')
    assert load(home=home, environ={}).settings.search_limit == 9


def test_a_setting_is_stored_beside_the_others_and_taken_out_again(
    home: Path, project_file: Path
) -> None:
    assert store(project_file, "search_limit", "12") == 12
    assert store(project_file, "embedder", "none") == "none"
    assert json.loads(project_file.read_text()) == {"search_limit": 12, "embedder": "none"}
    config = load(home=home, project_file=project_file, environ={})
    assert (config.settings.search_limit, config.settings.embedder) == (12, "none")
    assert clear(project_file, "search_limit")
    assert not clear(project_file, "search_limit")
    assert json.loads(project_file.read_text()) == {"embedder": "none"}


def test_storing_makes_the_folder(tmp_path: Path) -> None:
    store(tmp_path / "new" / "config.json", "min_score", "0.5")
    assert json.loads((tmp_path / "new" / "config.json").read_text()) == {"min_score": 0.5}


@pytest.mark.parametrize(("key", "text"), [("search_limit", "0"), ("nothing", "1")])
def test_a_bad_value_is_not_stored(project_file: Path, key: str, text: str) -> None:
    project_file.write_text('{"embedder": "none"}')
    with pytest.raises(BadSetting):
        store(project_file, key, text)
    assert project_file.read_text() == '{"embedder": "none"}'


def test_a_file_that_cannot_be_read_is_not_overwritten(project_file: Path) -> None:
    project_file.write_text("{ a person was here")
    with pytest.raises(BadSetting):
        store(project_file, "search_limit", "5")
    assert project_file.read_text() == "{ a person was here"


def test_an_unknown_key_can_be_cleared_but_not_asked_for(project_file: Path) -> None:
    project_file.write_text('{"old_key": 1}')
    assert clear(project_file, "old_key")
    with pytest.raises(BadSetting, match="no setting 'old_key'"):
        clear(project_file, "old_key")


def test_the_home_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert home_folder({"RALPH_HOME": "/some/where"}) == Path("/some/where")
    assert home_folder({}) == Path.home() / ".ralph"
    assert home_folder({"RALPH_HOME": ""}) == Path.home() / ".ralph"
    assert home_folder({"RALPH_HOME": "~/mine"}) == Path.home() / "mine"


def test_a_memory_is_opened_with_all_of_them(
    project: Path, home: Path, user_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_file.write_text('{"search_limit": 3}')
    (project / ".ralph" / "rag_config.json").write_text('{"stagnation_limit": 2}')
    monkeypatch.setenv("RALPH_EMBEDDER", "none")
    with open_ralph(project, min_score=0.0) as memory:
        settings = memory.config.settings
        assert (settings.search_limit, settings.stagnation_limit) == (3, 2)
        assert (settings.embedder, settings.min_score) == ("none", 0.0)
        auth = memory.feature("auth")
        auth.remember_all([{"summary": f"login form {n}"} for n in range(9)])
        assert len(auth.search("login form")) == 3


def test_the_journal_is_waited_for_as_long_as_the_setting_says(project: Path) -> None:
    with open_ralph(project, embedder="none", journal_lock_timeout_s=0.01) as memory:
        auth = memory.feature("auth")
        auth.remember({"summary": "login form"})
        file = project / ".ralph" / "db" / "memory" / "auth.jsonl"
        with disk.lock(file, timeout_s=5), pytest.raises(JournalBusy, match=r"over 0\.01 s"):
            auth.remember({"summary": "logout link"})


def test_a_password_in_an_address_is_not_shown(tmp_path: Path) -> None:
    url = "http://ralph:tr0ub4dor@127.0.0.1:6333"
    assert store(tmp_path / "config.json", "qdrant_url", url) == "http://127.0.0.1:6333"
    loaded = load(home=tmp_path, environ={})
    assert loaded.settings.qdrant_url == url
    assert "tr0ub4dor" not in repr(loaded)


def test_the_page_of_settings_tells_them_as_they_are() -> None:
    def row(key: str) -> str:
        value, rule = getattr(Settings(), key), RULES[key]
        default = "" if value in (None, ()) else str(value)
        default = default.lower() if isinstance(value, bool) else default
        numbers = f"{rule.low} to {rule.high}" if rule.high else ""
        free = ", ".join(str(one).lower() for one in rule.free)
        level = f"{rule.level}{'; free: ' * bool(free)}{free}"
        return f"| `{key}` | {default} | {rule.what} | {numbers} | {level} |"

    made = "\n".join(map(row, KEYS))
    page = DOCS / "settings.md"
    assert made in page.read_text(encoding="utf-8"), f"docs/settings.md must have:\n{made}"
