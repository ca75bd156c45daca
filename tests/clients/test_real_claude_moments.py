"""What Ralph says at commands and files, in sessions of the real Claude Code with its own hooks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from clients import FEATURES, TASKS, World, client, ralph, worlds
from scripted_model import Call, Request, Run, ScriptedModel, Step

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

WRONG = Call("Bash", {"command": "rtk make export"})
RIGHT = Call("Bash", {"command": "make export"})
RIGHT_STEP = Step(calls=(RIGHT,))
DEPLOY = Call("Bash", {"command": "make deploy"})
HELD = "held this command once and did not run it"
UNATTENDED = "RALPH_HOOK_HOLDS_UNATTENDED"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A scratch world with Claude Code in it, and Ralph's plugin in that."""
    client("claude")
    for world in worlds(tmp_path):
        # A slow machine is no failure here.
        world.environ["RALPH_HOOK_TIMEOUT_S"] = "60"
        # The plugin calls `ralph`, which is where the interpreter of the tests is.
        world.environ["PATH"] += f":{Path(sys.executable).parent}"
        yield world


@pytest.fixture
def root(world: World) -> Path:
    """A project with Ralph's hooks whose export can be made, and deployed."""
    root = world.project(FEATURES, TASKS)
    rules = "export:\n\t@echo made it\ndeploy:\n\t@echo shipped it\ntest:\n\t@echo 3 passed\n"
    (root / "Makefile").write_text(rules, encoding="utf-8")
    world.run(ralph("hooks", "install", "--project"), cwd=root)
    return root


def session(world: World, root: Path, prompt: str, *steps: Step) -> list[Request]:
    """Hold a session in which the model does this; return what the model was shown."""
    with ScriptedModel(Run(steps=(*steps, Step(text="Done: the export was made.")))) as model:
        world.talk_to(model.url)
        words = ["-p", "--allowedTools", "Bash", "Read", "Edit", "--", prompt]
        world.run([client("claude"), *words], cwd=root)
        return model.asked(0)


def test_a_command_that_failed_in_two_sessions_is_held_once_and_then_runs(
    world: World, root: Path
) -> None:
    for _ in range(2):
        session(world, root, "Make the export, please", Step(calls=(WRONG,)), Step(calls=(RIGHT,)))

    again = (Step(calls=(WRONG,)), Step(calls=(WRONG,)))
    unattended = session(world, root, "Make the export again", *again)
    assert HELD not in unattended[-1].shown  # nobody is at `claude -p`

    world.environ[UNATTENDED] = "true"
    began, held, ran = session(world, root, "Make the export once more", *again)
    assert HELD not in began.shown
    assert HELD in held.results[-1]
    assert "`make export`" in held.results[-1]
    assert "not found" in ran.results[-1]
    assert HELD not in ran.results[-1]

    world.environ["RALPH_HOOK_HOLDS"] = "false"
    switched_off = session(world, root, "Make the export a last time", *again)
    assert HELD not in switched_off[-1].shown


def test_what_was_noted_about_a_file_follows_its_text(world: World, root: Path) -> None:
    makefile = Call("Read", {"file_path": str(root / "Makefile")})
    change = {"file_path": str(root / "Makefile"), "old_string": "made it", "new_string": "made"}
    world.run(ralph("remember", "Makefile: recipes start with @, so CI logs stay short."), cwd=root)
    steps = (Step(calls=(makefile,)), Step(calls=(Call("Edit", change),)))
    began, read, changed = session(world, root, "Change what it prints", *steps)
    line = "recipes start with @, so CI logs stay short"
    about = read.shown.partition("about this file")[2]
    assert "about this file" not in began.shown
    assert read.shown.index("shipped it") < read.shown.index("about this file")
    assert line in about
    assert changed.shown.count("about this file") == 1  # once a session


def test_a_rule_holds_only_after_the_person_approved_it(world: World, root: Path) -> None:
    session(world, root, "From now on, never run make deploy here. Make the export.", RIGHT_STEP)
    deploy = (Step(calls=(DEPLOY,)), Step(calls=(DEPLOY,)))
    before = session(world, root, "Ship the export", *deploy)
    assert "shipped it" in before[-1].results[-1]

    listed = json.loads(world.run(ralph("inbox", "--json"), cwd=root).stdout)
    [rule] = [one for one in listed if "make deploy" in json.dumps(one["targets"])]
    world.run(ralph("inbox", "hold", rule["id"]), cwd=root)
    _, held, ran = session(world, root, "Ship the export again", *deploy)
    assert "never run make deploy here" in held.results[-1]
    assert "shipped it" in ran.results[-1]

    world.run(ralph("inbox", "ask", rule["id"]), cwd=root)
    _, asked, again = session(world, root, "Ship the export once more", *deploy)
    # With nobody there, a call that asks does not run.
    assert "shipped it" not in asked.results[-1] + again.results[-1]


def test_a_compacted_session_is_told_what_its_summary_may_lack(world: World, root: Path) -> None:
    change = {"file_path": str(root / "Makefile"), "old_string": "made it", "new_string": "made"}
    look = Call("Read", {"file_path": str(root / "Makefile")})
    test = Call("Bash", {"command": "make test"})
    calls = (look, Call("Edit", change), test)
    work = Run(steps=(*(Step(calls=(call,)) for call in calls), Step(text="It is shorter now.")))
    later = Step(text="The export prints less now.")
    words = ["--output-format", "json", "--allowedTools", "Bash", "Read", "Edit"]
    prompt = "Never print more than one word in a rule. Shorten what the export prints."
    with ScriptedModel(msgspec.structs.replace(work, steps=(*work.steps, later, later))) as model:
        world.talk_to(model.url)
        ran = world.run([client("claude"), "-p", prompt, *words], cwd=root)
        resume = ["--resume", json.loads(ran.stdout)["session_id"], *words]
        world.run([client("claude"), "-p", "/compact", *resume], cwd=root)
        world.run([client("claude"), "-p", "go on, please", *resume], cwd=root)
        shown = model.asked(0)[-1].shown

    told = shown.rpartition("<ralph-memory>")[2]
    assert '"Never print more than one word in a rule."' in told
    assert "`make test` passed" in told
    assert "Makefile" in told


def test_what_is_told_leaves_everything_before_it_as_it_was(world: World, root: Path) -> None:
    makefile = Call("Read", {"file_path": str(root / "Makefile")})
    world.run(ralph("remember", "Makefile: recipes start with @, so CI logs stay short."), cwd=root)
    for _ in range(2):
        session(world, root, "Make the export, please", Step(calls=(WRONG,)), RIGHT_STEP)
    world.environ[UNATTENDED] = "true"
    calls = (makefile, WRONG, WRONG, RIGHT, makefile)
    prompt = "Why do the recipes of the Makefile start with @?"

    asked = session(world, root, prompt, *(Step(calls=(call,)) for call in calls))

    shown = asked[-1].shown
    for told in ("observations from earlier work", "about this file", HELD, "knows this error"):
        assert told in shown
    # The client's prompt cache holds as long as each request begins with the whole one before it.
    for before, after in pairwise(asked):
        for part in ("system", "tools"):
            assert _sent(before.body[part]) == _sent(after.body[part])
        earlier = [_sent(message) for message in before.messages]
        assert [_sent(message) for message in after.messages][: len(earlier)] == earlier


def _sent(value: object) -> object:
    """What counts for a prompt cache: without the marks that say up to where to store it.

    A marked text is a block; without a mark, the same text may be sent plain.
    """
    if isinstance(value, dict):
        sent = {key: _sent(one) for key, one in value.items() if key != "cache_control"}
        if isinstance(sent.get("content"), str):
            sent["content"] = [{"type": "text", "text": sent["content"]}]
        return sent
    return [_sent(one) for one in value] if isinstance(value, list) else value
