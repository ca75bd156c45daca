"""The real Gemini CLI, against a model that plays a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from clients import FEATURES, TASKS, World, client, ralph, worlds
from hooking import exchanges, roomy
from scripted_model import Call, Run, ScriptedModel, Step

from ralph.plan.store import Plan
from ralph.records.conversation import Exchange

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

MODEL = "gemini-2.5-pro"
SETTINGS = {
    "model": {"name": MODEL},
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A scratch world with Gemini CLI in it."""
    client("gemini")
    for world in worlds(tmp_path):
        folder = world.home / ".gemini"
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
        yield world


@pytest.fixture
def root(world: World) -> Path:
    return world.project(FEATURES, TASKS)


def talk_to(world: World, model: ScriptedModel) -> None:
    world.environ |= {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model.url, **roomy()}


def prompt(world: World, root: Path, text: str) -> None:
    """A person's own session of one prompt."""
    words = ["--approval-mode", "yolo", "--skip-trust", "-p", text]
    world.run([client("gemini"), *words], cwd=root)


def write(path: Path, content: str) -> Call:
    return Call("write_file", {"file_path": str(path), "content": content})


def shell(command: str) -> Call:
    return Call("run_shell_command", {"command": command})


# Gemini CLI writes a server's tools so.
SEARCH = "mcp_ralph-memory_search_memory"
# A script: it lets nobody but a person change a Makefile.
EXPORT = shell("sh export.sh")
MISSING = "cannot open export.sh: No such file"


def test_the_loop_drives_it_with_memory_and_records_what_it_did(world: World, root: Path) -> None:
    tried = Run(
        steps=(
            Step(text="I try.", calls=(EXPORT,)),
            Step(text="The export cannot be made: nobody has written the file."),
        )
    )
    last = "Fixed it: there was no file export.sh that makes the export, so I wrote one."
    script = write(root / "export.sh", "mkdir -p build\n")
    found = Run(
        steps=(
            Step(text="What is known?", calls=(shell("ralph search 'export script'"),)),
            Step(text="I write the script.", calls=(script,)),
            Step(calls=(shell("ralph task update 1 --status done"),)),
            Step(text=last),
        )
    )
    world.environ["RALPH_AGENT_PERMISSIONS"] = "project, sh export.sh"
    with ScriptedModel(tried, found) as model:
        talk_to(world, model)
        ran = world.loop(root, "--agent", "gemini", "--max-iterations", "3")
    assert ran.outcomes == ["failure", "success"]
    first, second = ran.told["export"]
    [error] = first.errors
    assert MISSING in error.message
    assert second.errors == ()
    assert [(file.path, file.action) for file in second.files_touched] == [("export.sh", "created")]
    assert (second.summary, second.tokens_used) == (last, 480)
    assert Plan(root).task(1).status == "done"
    assert MISSING in model.asked(1)[1].results[-1]


def test_it_runs_the_projects_commands_and_no_others(world: World, root: Path) -> None:
    calls = [
        Step(calls=(shell(one),)) for one in ("echo six; git status", "curl http://127.0.0.1:1/")
    ]
    with ScriptedModel(Run(steps=(*calls, Step(text="Nothing was fetched.")))) as model:
        talk_to(world, model)
        ran = world.loop(root, "--agent", "gemini", "--max-iterations", "1")
    assert "six" in model.asked(0)[1].results[-1]
    [ended] = [event for event in ran.events if event["event"] == "ended"]
    assert ended["denied"] == ["run_shell_command(curl http://127.0.0.1:1/)"]
    assert ran.told["export"][0].errors == ()


def saved(root: Path) -> list[Exchange]:
    """Its exchanges by time; their numbers are in the order in which they were read."""
    found = (msgspec.structs.replace(one, number=0) for one in exchanges(root))
    return sorted(found, key=lambda one: one.started or "")


def test_its_hooks_save_a_session_and_tell_the_next_one(
    world: World, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first session has the project's hooks (`ralph` by name), the second the person's own.
    world.environ["PATH"] += f":{Path(sys.executable).parent}"
    world.run(ralph("hooks", "install", "--agent", "gemini"), cwd=root)
    trusted = world.home / ".gemini" / "trustedFolders.json"
    trusted.write_text(json.dumps({str(root): "TRUST_FOLDER"}), encoding="utf-8")
    complaint = "ExportError: the sheet has no column total_price"
    script = f"test -e columns.txt || {{ echo '{complaint}' >&2; exit 3; }}\n"
    (root / "export.sh").write_text(script, encoding="utf-8")
    columns = write(root / "columns.txt", "total_price\n")
    fix = "Fixed: the csv export had no columns.txt, so I wrote one and it passes now."
    first = Run(
        when="csv export",
        steps=(
            Step(calls=(EXPORT,)),
            Step(calls=(columns,)),
            Step(calls=(EXPORT,)),
            Step(text=fix),
        ),
    )
    find = Call(SEARCH, {"query": "csv export columns"})
    steps = (Step(calls=(EXPORT,)), Step(calls=(find,)), Step(text="I see."))
    second = Run(when="again fails", steps=steps)
    with ScriptedModel(first, second) as model:
        talk_to(world, model)
        prompt(world, root, "Please make the csv export work.")
        assert len(saved(root)) == 1
        world.run(ralph("hooks", "uninstall", "--agent", "gemini"), cwd=root)
        world.run(ralph("hooks", "install", "--user", "--agent", "gemini"), cwd=root)
        (root / "columns.txt").unlink()
        prompt(world, root, "The csv export again fails, what did we do?")
    one, two = saved(root)
    assert one.user == "Please make the csv export work."
    assert (one.assistant, one.status, one.model) == (fix, "complete", MODEL)
    [error] = one.errors
    assert error.message == complaint
    assert error.resolution is not None
    assert [(file.path, file.action) for file in one.files_touched] == [("columns.txt", "created")]
    began, failed, searched = model.asked(1)
    assert "had no columns.txt" in began.shown
    assert "Edited columns.txt; then `sh export.sh` passed." in failed.results[-1]
    assert "had no columns.txt" in searched.results[-1]
    assert two.user == "The csv export again fails, what did we do?"

    # What it wrote down itself is the same, and is not saved twice.
    world.import_sessions("gemini-cli", root)
    assert saved(root) == [one, two]
    # A machine that had no hooks gets it from there.
    world.environ["RALPH_HOME"] = str(world.folder / "other")
    monkeypatch.setenv("RALPH_HOME", world.environ["RALPH_HOME"])
    world.import_sessions("gemini-cli", root)
    assert saved(root) == [one, two]
    world.run(ralph("hooks", "uninstall", "--user", "--agent", "gemini"), cwd=root)
    left = json.loads((world.home / ".gemini" / "settings.json").read_bytes())
    assert not {"hooks", "mcpServers"} & left.keys()
    assert left["security"] == SETTINGS["security"]
