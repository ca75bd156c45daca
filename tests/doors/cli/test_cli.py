"""The command line as a whole: its words, its exit codes, and how it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commanding import LOGIN, Line
from remembering import index_file

from ralph import __version__
from ralph.doors.cli.main import COMMANDS, GROUPS, Tree
from ralph.doors.cli.main import ralph as tree


@pytest.fixture
def ralph(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    monkeypatch.setenv("RALPH_EMBEDDER", "none")
    return Line(capsys, monkeypatch)


# The commands of memory itself, as help lists them.
OURS = """
init status doctor config search recent failures files show record forget export import journal
index completion
""".split()


def test_help_lists_the_commands_in_groups_in_the_order_of_the_table(ralph: Line) -> None:
    listing = ralph.well("help", "--all").out.partition("Start:\n")[2]

    titles = [line.rstrip(":") for line in listing.splitlines() if line.endswith(":")]
    listed = [line.split(maxsplit=1) for line in listing.splitlines() if line.startswith("  ")]
    assert titles == ["Look", "Plan", "Run", "Care", "Advanced"]
    assert listed == [[name, text] for rows in GROUPS.values() for name, (_, text) in rows.items()]
    assert [name for name, _ in listed if name in OURS] == OURS


def test_help_does_not_list_what_only_programs_call(ralph: Line) -> None:
    assert "hook" in COMMANDS
    assert "  hook " not in ralph.well("help", "--all").out


def test_help_fits_on_one_screen_and_says_how_to_see_every_command(ralph: Line) -> None:
    screen = ralph.well("--help").out
    whole = ralph.well("help", "--all").out

    assert len(screen.splitlines()) <= 36
    listed = {line.split()[0] for line in screen.splitlines() if line.startswith("  ")}
    assert {"init", "hooks", "search", "remember", "forget", "run"} <= listed
    every = len([name for rows in GROUPS.values() for name in rows])
    assert f"`ralph help --all` lists all {every} commands." in screen
    assert "--project DIR" in whole


def test_a_group_lists_its_commands_with_whole_sentences(ralph: Line) -> None:
    listing = ralph.well("knowledge", "--help").out.partition("Commands:\n")[2]

    assert "..." not in listing
    assert "Forget what was published longer ago than" in listing


@pytest.mark.parametrize("name", OURS)
def test_a_command_says_the_same_of_itself_as_the_list(ralph: Line, name: str) -> None:
    said = ralph.well(name, "--help").out

    assert said.startswith(f"Usage: ralph {name}")
    assert COMMANDS[name][1].rstrip(".") in " ".join(said.split())


@pytest.mark.parametrize("name", OURS)
def test_every_command_takes_a_project(name: str) -> None:
    assert isinstance(tree, Tree)
    context = tree.make_context("ralph", [name, "--help"], resilient_parsing=True)
    command = tree.get_command(context, name)
    assert command is not None
    assert any("--project" in option.opts for option in command.params)


LOADED = "import sys; from ralph.doors.cli.main import run; run(sys.argv[1:]); print(*sys.modules)"


def loaded(project: Path, *words: str) -> set[str]:
    """The modules that a command loads in a fresh process."""
    told = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.splitlines()[-1].split())


def test_help_loads_no_command(project: Path) -> None:
    modules = loaded(project, "--help")

    assert "ralph.doors.cli.main" in modules
    assert not {name for name in modules if name.startswith("ralph.doors.cli.commands.")}
    assert modules & {"msgspec", "numpy", "rich", "sqlite3", "logging", "json.tool"} == set()


def test_a_command_loads_only_what_it_uses(project: Path) -> None:
    modules = loaded(project, "recent", "--json")

    assert "ralph.memory.ralph" in modules
    assert modules & {"numpy", "rich", "tokenizers", "ruamel", "httpx", "asyncio"} == set()


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_can_be_asked_for(ralph: Line, word: str) -> None:
    assert ralph.well(word).out == f"ralph {__version__}\n"


def test_unset_finds_a_personal_setting(ralph: Line, project: Path) -> None:
    ralph.well("config", "--user", "qdrant_url", "http://127.0.0.1:1")
    assert "qdrant_url is no longer in" in ralph.well("config", "qdrant_url", "--unset").out
    assert ralph.well("config", "qdrant_url", "--json").json["value"] is None


def test_unset_names_the_file_that_has_the_setting(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    ralph.well("config", "--user", "search_limit", "5")
    said = ralph.well("config", "search_limit", "--unset").out
    assert "it is in your own settings: ralph config --user --unset search_limit" in said
    assert ralph.well("config", "search_limit", "--json").json["value"] == 5


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("serach x", "There is no command 'serach'. Did you mean 'search'?"),
        ("zzz", "There is no command 'zzz'."),
        ("search", "Missing argument"),
        ("search login --limit 0", "--limit"),
        ("search login --min-score 2", "--min-score"),
        ("search login --colour", "--colour"),
        ("recent --project", "requires an argument"),
        ("recent --count many", "many"),
        ("record - --outcome great", "great"),
        ("forget", "Name records to forget"),
        ("config --unset", "--unset takes a KEY"),
        ("config --user", "--user goes with"),
        ("completion tcsh", "tcsh"),
        ("journal", "verify"),
        ("index mend", "mend"),
    ],
)
def test_a_wrong_call_ends_with_2_and_says_what_is_wrong(ralph: Line, line: str, told: str) -> None:
    ran = ralph(*line.split())

    assert ran.code == 2
    assert told in ran.err
    assert ran.out == ""


PROJECT_FIRST = "--project {} recent --json"
PROJECT_ANYWHERE = [
    PROJECT_FIRST,
    "--project={} recent --json",
    "recent --project {} --json",
    "recent --json --project {}",
    "recent --json --project={}",
    "--project /nowhere recent --json --project {}",
]


@pytest.mark.parametrize("line", PROJECT_ANYWHERE)
def test_the_project_may_stand_anywhere_on_the_line(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    root = tmp_path / 'it\'s a "proyecto" ünïcøde 项目'
    ralph.well("init", root)
    monkeypatch.chdir(root)
    ids = ralph.record("auth", LOGIN)
    monkeypatch.chdir(tmp_path)

    ran = ralph.well(*(word.format(root) for word in line.split()))

    assert [hit["id"] for hit in ran.json] == ids


@pytest.mark.parametrize(
    "line",
    ["--project {} journal verify", "journal --project {} verify", "journal verify --project {}"],
)
def test_the_project_may_stand_inside_a_group(ralph: Line, project: Path, line: str) -> None:
    assert ralph.well(*(word.format(project) for word in line.split())).err == ""


def test_the_project_is_the_nearest_folder_upwards(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = project / "src" / "deep"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)

    ids = ralph.record("auth", LOGIN)

    assert [hit["id"] for hit in ralph.well("recent", "--project", project, "--json").json] == ids


def test_the_environment_may_name_the_project(
    ralph: Line, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RALPH_PROJECT", str(project))

    assert ralph.well("recent", "--json").json == []


def test_no_project_is_one_line_that_says_how_to_make_one(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    ran = ralph("task", "list")

    assert ran.code == 1
    assert ran.out == ""
    assert ran.complaint == f"ralph: {tmp_path}: no .ralph folder here or above. Run: ralph init"


def test_a_project_that_is_not_there_is_refused(ralph: Line, tmp_path: Path) -> None:
    ran = ralph("recent", "--project", tmp_path / "gone")

    assert ran.code == 1
    assert "there is no folder" in ran.complaint


def test_a_missing_file_is_one_line(ralph: Line, project: Path) -> None:
    ran = ralph("import", "gone.jsonl", "--project", project)

    assert ran.code == 1
    assert ran.complaint == "ralph: gone.jsonl: No such file or directory"


@pytest.mark.parametrize("words", ["export", "conversations export", "backup"])
def test_a_file_cannot_be_written_to_a_folder_that_is_not_there(
    ralph: Line, project: Path, tmp_path: Path, words: str
) -> None:
    ran = ralph(*words.split(), tmp_path / "gone" / "all.jsonl", "--project", project)

    assert ran.code == 1
    assert ran.complaint == f"ralph: {tmp_path / 'gone'}: there is no such folder"


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be deleted there")
def test_a_current_folder_that_was_deleted_is_told(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert ralph("search", "foo bar").complaint == "ralph: the current folder no longer exists"


def test_an_error_shows_its_traceback_only_when_asked(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_DEBUG", "1")
    ran = ralph("task", "list", "--project", tmp_path)

    assert ran.code == 1
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1].startswith("ralph: ")


def test_what_nobody_foresaw_is_one_line_too(
    ralph: Line, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fall(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("ralph.memory.ralph.Ralph.recent", fall)
    ran = ralph("recent", "--project", project)

    assert ran.code == 1
    assert ran.complaint == (
        "ralph: internal error (ZeroDivisionError: by zero). "
        "Run again with RALPH_DEBUG=1 for a traceback"
    )


def test_what_memory_warns_of_is_one_line_on_stderr(ralph: Line, project: Path) -> None:
    ralph.well("record", "--feature", "auth", "--project", project, stdin='{"summary": "a cookie"}')
    index_file(project).write_bytes(b"no database at all")

    ran = ralph.well("search", "cookie", "--json", "--project", project)

    warned, note = ran.err.splitlines()
    assert warned.startswith("ralph: the index was damaged")
    assert note == "ralph: searched by words alone: the setting embedder is none"
    assert len(ran.json) == 1
