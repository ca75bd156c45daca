"""In which request to the model the text of each hook of the real Claude Code stands.

docs/guide-moments.md publishes this as a table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from clients import World, client, worlds
from scripted_model import Call, Run, ScriptedModel, Step

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

EVENTS = (
    "SessionStart UserPromptSubmit PreToolUse PostToolUseFailure PreCompact PostCompact Stop"
).split()
# Writes down each event, and answers with a mark; two commands are held or asked about.
HOOK = """\
import json, sys
given = json.load(sys.stdin)
event = given["hook_event_name"]
kind = given.get("source") or given.get("tool_name") or given.get("trigger") or ""
with open(LOG, "a") as file:
    file.write(f"{event} {kind}".strip() + "\\n")
answer = {"hookEventName": event, "additionalContext": f"MARK {event} {kind}."}
command = str(given.get("tool_input", {}).get("command"))
if event == "PreToolUse" and command.startswith(("touch denied", "touch asked")):
    decision = "deny" if "denied" in command else "ask"
    answer = {"hookEventName": event, "permissionDecision": decision,
              "permissionDecisionReason": f"MARK {decision}."}
if event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUseFailure"):
    print(json.dumps({"hookSpecificOutput": answer}))
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A scratch world with Claude Code in it."""
    client("claude")
    yield from worlds(tmp_path)


def test_the_text_of_each_hook_stands_where_the_guide_says(world: World) -> None:
    root = world.folder / "project"
    (root / ".claude").mkdir(parents=True)
    (root / "notes.txt").write_text("the words of the file\n", encoding="utf-8")
    log = world.folder / "events.log"
    hook = world.folder / "hook.py"
    hook.write_text(f"LOG = {str(log)!r}\n{HOOK}", encoding="utf-8")
    command = {"type": "command", "command": f"{sys.executable} {hook}"}
    hooks = {event: [{"hooks": [command]}] for event in EVENTS}
    (root / ".claude" / "settings.json").write_text(json.dumps({"hooks": hooks}), encoding="utf-8")
    commands = ("echo it ran", "ls nowhere", "touch denied", "touch asked")
    calls = [Call("Read", {"file_path": str(root / "notes.txt")})]
    calls += [Call("Bash", {"command": one}) for one in commands]
    work = Run(steps=(*(Step(calls=(call,)) for call in calls), Step(text="That is all.")))
    words = ("--output-format", "json", "--allowedTools", "Bash", "Read")
    with ScriptedModel(work) as model:
        world.talk_to(model.url)
        ran = world.run([client("claude"), "-p", "do the work", *words], cwd=root)
        session = json.loads(ran.stdout)["session_id"]
        asked = list(model.asked(0))
        for prompt in ("/compact", "go on, please"):
            world.run([client("claude"), "-p", prompt, "--resume", session, *words], cwd=root)
        later = model.asked(0)[len(asked) :]

    # A start and a prompt: in the first request.
    assert "MARK SessionStart startup." in asked[0].shown
    assert "MARK UserPromptSubmit" in asked[0].shown
    # Before a tool: in the request after it ran, behind its result.
    assert "MARK PreToolUse" not in asked[0].shown
    for request, result, mark in (
        (asked[1], "the words of the file", "MARK PreToolUse Read."),
        (asked[2], "it ran", "MARK PreToolUse Bash."),
        (asked[3], "nowhere", "MARK PostToolUseFailure Bash."),
    ):
        assert request.shown.rindex(mark) > request.shown.index(result)
    # A held call is not run, and its reason is the tool's result. With nobody there, neither is
    # one that asks.
    assert "MARK deny." in asked[4].results[-1]
    assert "MARK ask." in asked[5].results[-1]
    assert not (root / "denied").exists()
    assert not (root / "asked").exists()
    # What was sent before stays as it was, so the client's cache holds.
    for before, after in pairwise(asked):
        assert after.shown.startswith(before.shown[:2000])

    # The start after a compaction comes before the summary is written, and stays from then on.
    events = log.read_text(encoding="utf-8").splitlines()
    compacted = events[events.index("PreCompact manual") :][:3]
    assert compacted == ["PreCompact manual", "SessionStart compact", "PostCompact manual"]
    assert "MARK SessionStart compact." in later[-1].shown
    assert "MARK PreToolUse Read." not in later[-1].shown
