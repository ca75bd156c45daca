"""The real OpenCode, against a model that plays a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients import FEATURES, TASKS, World, client, ralph, worlds
from hooking import exchanges, roomy
from scripted_model import Call, Run, ScriptedModel, Step

from ralph.plan.store import Plan
from ralph.records.conversation import Exchange

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

# OpenCode writes a server's tools so.
SEARCH = "feature-memory_search_feature_memory"
UPDATE = "feature-memory_update_task"
MAKE = Call("bash", {"command": "make export", "description": "Makes the export"})
NO_RULE = "No rule to make target 'export'.  Stop."


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A scratch world with OpenCode in it."""
    client("opencode")
    yield from worlds(tmp_path)


@pytest.fixture
def root(world: World) -> Path:
    return world.project(FEATURES, TASKS)


def talk_to(world: World, model: ScriptedModel) -> None:
    """Point OpenCode at this model and keep it from everything else."""
    options = {"baseURL": f"{model.url}/v1", "apiKey": "none"}
    provider = {"npm": "@ai-sdk/anthropic", "options": options, "models": {"m1": {"name": "M1"}}}
    settings = {
        "model": "scripted/m1",
        "small_model": "scripted/m1",
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["scripted"],
        "provider": {"scripted": provider},
    }
    folder = world.home / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.json").write_text(json.dumps(settings), encoding="utf-8")
    names = ("MODELS_FETCH", "AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD")
    world.environ |= {f"OPENCODE_DISABLE_{name}": "1" for name in names}
    world.environ |= roomy()
    # It would fetch a package for its plugins.
    world.environ |= {"NPM_CONFIG_REGISTRY": model.url, "NPM_CONFIG_FETCH_RETRIES": "0"}


def write(path: Path, content: str) -> Call:
    return Call("write", {"filePath": str(path), "content": content})


def saved(root: Path) -> list[Exchange]:
    return sorted(exchanges(root), key=lambda one: one.started or "")


def test_the_loop_drives_it_with_memory_and_records_what_it_did(world: World, root: Path) -> None:
    tried = Run(
        steps=(
            Step(text="I try.", calls=(MAKE,)),
            Step(text="The export cannot be made: make knows no such target."),
        )
    )
    last = "Fixed it: there was no rule to make the target export, so I wrote one."
    rule = write(root / "Makefile", "export:\n\tmkdir -p build\n")
    found = Run(
        steps=(
            Step(text="What is known?", calls=(Call(SEARCH, {"query": "make export target"}),)),
            Step(text="I write the rule.", calls=(rule,)),
            Step(calls=(Call(UPDATE, {"status": "done", "comment": "has a rule now"}),)),
            Step(text=last),
        )
    )
    with ScriptedModel(tried, found) as model:
        talk_to(world, model)
        ran = world.loop(root, "--agent", "opencode", "--max-iterations", "3")
    assert ran.outcomes == ["failure", "success"]
    first, second = ran.told["export"]
    assert [error.message for error in first.errors] == [NO_RULE]
    assert second.errors == ()
    assert [(file.path, file.action) for file in second.files_touched] == [("Makefile", "created")]
    assert (second.summary, second.tokens_used) == (last, 480)
    assert Plan(root).task(1).status == "done"
    assert "No rule to make target 'export'" in model.asked(1)[1].results[-1]


def test_it_runs_the_projects_commands_and_no_others(world: World, root: Path) -> None:
    commands = ("echo six; git status", "curl http://127.0.0.1:1/")
    calls = [Call("bash", {"command": one, "description": "Tries it"}) for one in commands]
    steps = [*(Step(calls=(one,)) for one in calls), Step(text="Nothing was fetched.")]
    with ScriptedModel(Run(steps=tuple(steps))) as model:
        talk_to(world, model)
        ran = world.loop(root, "--agent", "opencode", "--max-iterations", "1")
    assert "six" in model.asked(0)[1].results[-1]
    [ended] = [event for event in ran.events if event["event"] == "ended"]
    assert ended["denied"] == ["bash(curl http://127.0.0.1:1/)"]
    assert ran.told["export"][0].errors == ()


def test_its_plugin_saves_a_session_and_tells_the_next_one(
    world: World, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = write(root / "Makefile", "export:\n\tmkdir -p build\n")
    fix = "Fixed: the csv export had no rule in the Makefile, so I wrote one and it passes now."
    first = Run(
        when="csv export work",
        steps=(Step(calls=(MAKE,)), Step(calls=(rule,)), Step(calls=(MAKE,)), Step(text=fix)),
    )
    find = Call("ralph-memory_search_memory", {"query": "csv export rule"})
    second = Run(
        when="again fails",
        steps=(Step(calls=(MAKE,)), Step(calls=(find,)), Step(text="I see.")),
    )
    again = "The csv export again fails, what did we do in the Makefile?"
    with ScriptedModel(first, second) as model:
        talk_to(world, model)
        # The project's plugin calls `ralph` by name; the second session has the person's.
        world.environ["PATH"] += f":{Path(sys.executable).parent}"
        world.run(ralph("hooks", "install", "--agent", "opencode"), cwd=root)
        ask = "Please make the csv export work."
        world.run([client("opencode"), "run", ask], cwd=root)
        assert len(saved(root)) == 1
        world.run(ralph("hooks", "uninstall", "--agent", "opencode"), cwd=root)
        world.run(ralph("hooks", "install", "--user", "--agent", "opencode"), cwd=root)
        (root / "Makefile").unlink()
        world.run([client("opencode"), "run", again], cwd=root)
    one, two = saved(root)
    # It quotes what it is given in several words.
    assert (one.user, two.user) == (f'"{ask}"', f'"{again}"')
    assert (one.assistant, one.status, one.model) == (fix, "complete", "m1")
    [error] = one.errors
    assert error.message == NO_RULE
    assert error.resolution is not None
    assert [(file.path, file.action) for file in one.files_touched] == [("Makefile", "created")]
    told = model.asked(1)
    assert "had no rule in the Makefile" in told[0].shown
    assert "Edited Makefile" in told[1].results[-1]
    assert "had no rule in the Makefile" in told[2].results[-1]

    # Its database has the same, which is not saved twice; nothing waits to be captured.
    world.import_sessions("opencode", root)
    assert saved(root) == [one, two]
    assert not list(Path(world.environ["RALPH_HOME"]).rglob("spool/*"))
    # A machine that had no hooks gets it from there.
    world.environ["RALPH_HOME"] = str(world.folder / "other")
    monkeypatch.setenv("RALPH_HOME", world.environ["RALPH_HOME"])
    world.import_sessions("opencode", root)
    assert saved(root) == [one, two]
    world.run(ralph("hooks", "uninstall", "--user", "--agent", "opencode"), cwd=root)
    folder = world.home / ".config" / "opencode"
    assert not (folder / "plugins" / "ralph.js").exists()
    assert "mcp" not in json.loads((folder / "opencode.json").read_bytes())
