"""An agent in its run: what it may call, from the command line, over MCP and through hooks."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from commanding import COOKIE, LOGIN, Line, process
from looping import Loop, planned, scripted
from serving import wired

from ralph.current_run import CurrentRun, current_run
from ralph.doors.cli.in_run import _PLANNING, _REVIEW, _WORK
from ralph.doors.cli.main import Command
from ralph.doors.cli.main import ralph as tree
from ralph.plan.store import Plan
from ralph.records import now

Enter = Callable[..., None]
PRIVATE = "zebra quokka"
CONVERSATION = {
    "version": 1,
    "conversations": [
        {"title": "z", "exchanges": [{"user": f"{PRIVATE} plan?", "assistant": "PRIVATE words"}]}
    ],
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return planned(tmp_path / "project")


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch, project: Path) -> Enter:
    """Enters the environment of an agent that works on task 1 of `auth`."""

    def entering(feature: str = "auth", task: str = "1") -> None:
        monkeypatch.setenv("RALPH_PROJECT", str(project))
        monkeypatch.setenv("RALPH_FEATURE", feature)
        monkeypatch.setenv("RALPH_TASK", task)
        monkeypatch.setenv("RALPH_STARTED", now())

    return entering


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        if (found := command.get_command(context, name)) is not None:
            yield from leaves(found, (*words, name))


LEAVES = dict(leaves(tree))


def test_every_command_asks_the_table_and_the_table_names_only_commands() -> None:
    assert all(isinstance(command, Command) for command in LEAVES.values())
    for table in (_WORK, _REVIEW, _PLANNING):
        assert table.keys() <= LEAVES.keys()
        for words, call in table.items():
            names = {parameter.name for parameter in LEAVES[words].params}
            assert {*call.but, *filter(None, (call.feature, call.task))} <= names


def words_for(command: click.Command) -> list[str]:
    """Something for everything that a command must be given."""
    words: list[str] = []
    for parameter in command.params:
        if parameter.required:
            kind = parameter.type
            value = kind.choices[0] if isinstance(kind, click.Choice) else "1"
            words += [str(value)] if isinstance(parameter, click.Argument) else []
            words += (
                [] if isinstance(parameter, click.Argument) else [parameter.opts[0], str(value)]
            )
    return words


@pytest.mark.parametrize("words", sorted(LEAVES.keys() - _WORK.keys()))
def test_what_is_not_in_the_table_is_refused_before_it_does_anything(
    ralph: Line, enter: Enter, project: Path, home: Path, words: str
) -> None:
    def everything() -> dict[Path, bytes]:
        files = [*project.parent.rglob("*"), *home.parent.rglob("*")]
        return {file: file.read_bytes() for file in files if file.is_file()}

    before = everything()
    enter()

    ran = ralph(*words.split(), *words_for(LEAVES[words]))

    assert ran.code == 1
    assert f"an agent in `ralph run` may not call `ralph {words}`" in ran.complaint
    assert ran.out == ""
    assert everything() == before


def test_what_prompts_tell_an_agent_to_call_it_may_call(
    ralph: Line, enter: Enter, project: Path
) -> None:
    [login] = ralph.record("auth", {**LOGIN, "task_id": 1})
    enter()
    for line in (
        "search login --feature auth",
        "search login",
        "failures --feature auth --task 1",
        "recent --feature auth",
        "recent",
        "files",
        f"show {login}",
        "task update 1 --status in_progress --comment half",
        "task show 3",
        "feature show search",
        "prompt 1",
        "learning list --feature auth",
        f"task update 1 --status done --project {project}",
    ):
        ralph.well(*line.split())
    enter(task="")  # a review
    known = ralph.well("learning", "list", "--feature", "auth", "--json").json
    ralph.well("learning", "review", known[0]["id"], "--feature", "auth")
    ralph.well("learning", "remove", known[1]["id"], "--feature", "auth")
    ralph.well("feature", "update", "auth", "--architecture", "as it is", "--verified")
    enter(feature="", task="")  # planning
    ralph.well("feature", "add", "more", "--description", "d")
    ralph.well("task", "add", "T", "--feature", "more")
    ralph.well("task", "update", "3", "--comment", "c")
    ralph.well("feature", "update", "search", "--description", "other")
    assert ralph("search", "login").code == 1


@pytest.mark.parametrize(
    "line",
    [
        "learning review 3 --feature auth",  # its own kind
        "learning remove 1 --feature auth",  # a person's
        "learning remove 2 --feature auth",  # the extractor's
        "learning remove 3 --feature auth",  # of an agent before it
        "feature update auth --clear description",
        "feature update auth --description x",
        "feature update auth --clear architecture --clear boundaries",
        "feature update auth --verified",
        "task update 1 --clear acceptance_criteria",
        "task update 1 --title Anything",
        "task update 1 --description Anything",
        "task update 2 --title Anything",
    ],
)
def test_f1_f10_the_agent_of_a_task_takes_nothing_from_others(
    ralph: Line, enter: Enter, project: Path, line: str
) -> None:
    db = project / ".ralph" / "db"
    before = {file.name: file.read_bytes() for file in db.glob("*.yaml")}
    enter()

    ran = ralph(*line.split())

    assert ran.code == 1
    assert "works on a task" in ran.complaint
    assert {file.name: file.read_bytes() for file in db.glob("*.yaml")} == before


def test_the_agent_of_a_task_may_rewrite_prose_and_correct_its_own_learnings(
    ralph: Line, enter: Enter
) -> None:
    enter()
    added = ralph.well("learning", "add", "Own words.", "--feature", "auth", "--json").json
    ralph.well("learning", "remove", added["learning"]["id"], "--feature", "auth")
    prose = "A form posts to src/signing.py, which checks the hash and sets the cookie."
    ralph.well("feature", "update", "auth", "--architecture", prose)
    ralph.well("task", "update", "2", "--description", "It had none.", "--priority", "1")
    ralph.well("task", "update", "1", "--title", "Add the login form", "--status", "done")


def test_context_files_of_an_agent_are_not_a_persons(
    ralph: Line, enter: Enter, project: Path
) -> None:
    ralph.well("feature", "update", "auth", "--context-file", "src/login.py")
    enter()
    ralph.well("feature", "update", "auth", "--context-file", "src/other.py")
    files = Plan(project).feature("auth").context_files
    assert {file.path: file.source for file in files} == {
        "src/login.py": "human",
        "src/other.py": "auto",
    }


def test_an_agent_sees_its_feature_and_no_other(ralph: Line, enter: Enter) -> None:
    [own] = ralph.record("auth", LOGIN)
    [foreign] = ralph.record("search", {**COOKIE, "summary": f"The {PRIVATE} cookie."})
    enter()

    listed = ralph.well("recent", "--json").json
    assert [hit["id"] for hit in listed if hit["kind"] == "iteration"] == [own]
    assert {hit["record"]["feature"] for hit in listed} == {"auth"}
    assert ralph.well("failures", "--json").json == []
    found = ralph.well("search", f"{PRIVATE} cookie", "--min-score", "0", "--json").json
    assert {hit["record"]["feature"] for hit in found} <= {"auth"}
    for line in (
        f"show {foreign}",
        "search cookie --feature search",
        "recent --feature search",
        "failures --feature search",
        "files --feature search",
        "feature update search --description mine",
        "task update 3 --status done",
        "task update 1 --feature search",
        "task add T --feature search",
        "learning add x --feature search",
        "prompt 3",
    ):
        ran = ralph(*line.split())
        assert ran.code == 1, line
        assert PRIVATE not in ran.out + ran.err


def test_an_agent_reads_no_other_project_and_no_conversation(
    ralph: Line, enter: Enter, tmp_path: Path, project: Path
) -> None:
    other = planned(tmp_path / "other")
    ralph.well("--project", other, "conversations", "import", "-", stdin=json.dumps(CONVERSATION))
    ralph.well("conversations", "import", "-", stdin=json.dumps(CONVERSATION))
    hits = ralph.well("search", PRIVATE, "--conversations", "--min-score", "0", "--json").json
    enter()
    for line in (
        f"show {hits[0]['id']}",
        "search zebra --conversations",
        "search zebra --conversations --everywhere",
        "search zebra --knowledge",
        "conversations list",
        "conversations export - --everywhere",
        f"--project {other} recent",
        f"recent --project {other}",
        f"--project {other} export -",
        "export -",
        "config --user agent sh",
        "config agent sh",
        "config",
        "pause --everywhere",
        "forget --project --yes",
        "trust --yes",
        "hooks install --user",
        f"--project {tmp_path} recent",
    ):
        ran = ralph(*line.split())
        assert ran.code == 1, line
        assert ran.complaint.startswith("ralph: an agent in `ralph run` ") or "no record" in (
            ran.complaint
        )
        assert "PRIVATE" not in ran.out + ran.err


def test_a_run_gets_no_wider_server_than_its_own(
    project: Path, enter: Enter, tmp_path: Path, home: Path
) -> None:
    other = planned(tmp_path / "other")
    enter()
    for words in (
        ["--feature", "search"],
        ["--conversations", "--everywhere"],
        ["--conversations"],
        ["--planning"],
        ["--focus"],
        ["--feature", "auth", "--project", str(other)],
        ["--feature", "auth", "--review"],
    ):
        ran = process(["mcp", *words], cwd=project)
        assert ran.returncode == 1, words
        assert b"this is an agent's run, and it already has its own MCP server" in ran.stderr
    with wired(project, "--feature", "auth", "--task", "1") as server:
        server.greet()
        assert server.ask("tools/list")["result"]["tools"]
        assert server.hang_up() == 0


def test_the_failure_hook_of_a_run_tells_of_its_feature_alone(
    ralph: Line, project: Path, enter: Enter, tmp_path: Path
) -> None:
    error = "ValueError: the session cookie of the gateway is refused"
    other = planned(tmp_path / "other")
    told = {"errors": [{"message": error, "resolution": "Shorten it."}], "outcome": "success"}
    ralph.record("search", {**told, "summary": f"of another feature, {PRIVATE}"})
    ralph.well("--project", other, "record", "--feature", "auth", "-", stdin=json.dumps(told))
    given = {"cwd": str(project), "tool_name": "Bash", "error": error}
    sessions = iter("abcdef")  # one is told a thing once

    def hook(*words: str) -> bytes:
        said = {**given, "session_id": next(sessions), "tool_input": {"command": "x"}}
        data = json.dumps(said).encode()
        return process(["hook", "post-tool-use-failure", *words], cwd=project, stdin=data).stdout

    assert b"Shorten it." in hook()
    enter()
    assert hook() == b""
    assert hook("--project", str(other)) == b""
    enter(feature="", task="")
    assert hook() == b""
    enter(feature="search")
    assert b"Shorten it." in hook()


def test_in_the_loop_an_agent_reports_and_searches_and_nothing_else(
    project: Path, tmp_path: Path
) -> None:
    loop = Loop(project)
    kept = tmp_path / "kept.txt"
    steps = [
        {"bash": f"{{{{ralph}}}} export - >> {kept} 2>&1; true"},
        {"bash": f"{{{{ralph}}}} search --conversations --everywhere x >> {kept} 2>&1; true"},
        {"bash": f"{{{{ralph}}}} trust --yes >> {kept} 2>&1; true"},
        {"bash": "{{ralph}} search form --feature auth"},
        {"bash": "{{ralph}} task update $RALPH_TASK --status done"},
    ]
    loop(scripted(tmp_path, {"steps": steps, "result": "Done."}), max_iterations=1)
    assert loop.outcomes == ["success"]
    lines = kept.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3
    assert all(line.startswith("ralph: an agent in `ralph run` may not call") for line in lines)


def test_the_environment_tells_what_a_run_works_on() -> None:
    assert current_run({}) is None
    assert current_run({"RALPH_FEATURE": "", "RALPH_PROJECT": "/p"}) is None
    assert current_run({"RALPH_TASK": "1"}) == CurrentRun(None, "1", "")
    assert current_run({"RALPH_TASK": "", "RALPH_FEATURE": ""}) == CurrentRun("", "", "")
    assert current_run({"RALPH_FEATURE": "a"}) == CurrentRun("a", "", "")


def test_an_agent_learns_nothing_of_other_projects(
    ralph: Line, enter: Enter, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    ralph.well("conversations", "import", "-", stdin=json.dumps(CONVERSATION))
    monkeypatch.chdir(project)
    assert "other project" in ralph.well("search", "kubernetes").out

    enter()

    for words in (("recent",), ("search", "kubernetes"), ("failures",)):
        assert "other project" not in ralph.well(*words).out
        assert "may not call" in ralph(*words, "--everywhere").complaint


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the environment of parents")
@pytest.mark.parametrize(
    "trick",
    [
        "env -u RALPH_TASK -u RALPH_FEATURE",
        "env RALPH_TASK=",
        "env RALPH_TASK= RALPH_FEATURE=",
        "env -u RALPH_TASK -u RALPH_FEATURE setsid -w",
        "env -i HOME=$HOME RALPH_HOME=$RALPH_HOME PATH=$PATH",
    ],
)
def test_f10_an_agent_that_changes_its_variables_is_still_in_its_run(
    project: Path, tmp_path: Path, trick: str
) -> None:
    loop = Loop(project, embedder="none")
    said = tmp_path / "said.txt"
    before = (project / ".ralph/db/features.yaml").read_text()
    calls = (
        "learning review 3 --feature auth",
        "learning remove 1 --feature auth",
        "feature update auth --clear description",
        "forget --feature auth --yes",
        "undo",
        "mcp --feature auth --review",
    )
    steps = [{"bash": f"{trick} {{{{ralph}}}} {call} >> {said} 2>&1; true"} for call in calls]
    loop(scripted(tmp_path, {"steps": steps}), max_iterations=1)
    lines = said.read_text().splitlines()
    assert len(lines) == len(calls)
    assert all("agent" in line for line in lines), lines
    assert (project / ".ralph/db/features.yaml").read_text() == before
    assert loop.facts("changed") == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the environment of parents")
def test_an_orphan_of_an_agent_is_still_in_its_run(project: Path, tmp_path: Path) -> None:
    loop = Loop(project, embedder="none")
    said = tmp_path / "said.txt"
    call = f"{{{{ralph}}}} learning review 3 --feature auth >> {said} 2>&1"
    orphan = f"(env -u RALPH_TASK -u RALPH_FEATURE setsid {call} &) ; sleep 5"
    loop(scripted(tmp_path, {"steps": [{"bash": orphan}]}), max_iterations=1)
    assert "may not call `ralph learning review`" in said.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the environment of parents")
def test_f6_hooks_tell_an_agent_without_its_variables_nothing_private(
    project: Path, tmp_path: Path, ralph: Line
) -> None:
    ralph.well("remember", "--private", "My login at the vendor is kept in the safe.")
    loop = Loop(project, embedder="none")
    said = tmp_path / "said.txt"
    given = json.dumps({"session_id": "s1", "cwd": str(project), "prompt": "vendor login safe"})
    (tmp_path / "given.json").write_text(given)
    hook = f"{{{{ralph}}}} hook user-prompt-submit < {tmp_path / 'given.json'}"
    without = "env -u RALPH_TASK -u RALPH_FEATURE -u RALPH_PROJECT -u RALPH_STARTED"
    steps = [{"bash": f"{without} {hook} >> {said}"}]
    loop(scripted(tmp_path, {"steps": steps}), max_iterations=1)
    assert "vendor" not in said.read_text()
