"""The real Codex with no network but loopback, against a model that plays a script."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from clients import FEATURES, TASKS, client, ralph
from codex import MAKEFILE, Codex
from hooking import exchanges, roomy
from scripted_model import Call, Run, Step

from ralph.plan.store import Plan

if sys.platform == "win32":
    pytest.skip("there are no network namespaces", allow_module_level=True)

# Codex writes a server's name so.
SEARCH = "mcp__feature_memory.search_feature_memory"
UPDATE = "mcp__feature_memory.update_task"


@pytest.fixture
def root(codex: Codex) -> Path:
    return codex.world.project(FEATURES, TASKS)


def test_the_loop_drives_it_with_memory_and_records_what_it_did(codex: Codex, root: Path) -> None:
    tried = Run(
        steps=(
            Step(text="I try.", calls=(Call("exec_command", {"cmd": "make export"}),)),
            Step(text="The export cannot be made: make knows no such target."),
        )
    )
    last = "Fixed it: there was no rule to make the target export, so I wrote one."
    found = Run(
        steps=(
            Step(text="What is known?", calls=(Call(SEARCH, {"query": "make export target"}),)),
            Step(text="I write the rule.", calls=(Call("apply_patch", MAKEFILE),)),
            Step(calls=(Call(UPDATE, {"status": "done", "comment": "has a rule now"}),)),
            Step(text=last),
        )
    )
    ran = codex.world.loop(
        root, "--agent", "codex", "--max-iterations", "3", prefix=codex.playing(tried, found)
    )
    assert ran.outcomes == ["failure", "success"]
    first, second = ran.told["export"]
    assert [error.message for error in first.errors] == ["No rule to make target 'export'.  Stop."]
    assert second.errors == ()
    assert [(file.path, file.action) for file in second.files_touched] == [("Makefile", "created")]
    assert (second.summary, second.tokens_used) == (last, 480)
    assert Plan(root).task(1).status == "done"
    assert "No rule to make target 'export'" in codex.asked(1)[1].results[-1]


def test_a_person_s_own_codex_searches_memory_once_ralph_is_installed_in_it(
    codex: Codex, root: Path
) -> None:
    record = '{"outcome": "failure", "summary": "The csv module writes None as an empty cell."}'
    file = codex.world.folder / "record.json"
    file.write_text(record, encoding="utf-8")
    codex.world.run(ralph("record", "--feature", "export", file), cwd=root)
    codex.world.run(ralph("hooks", "install", "--user", "--agent", "codex"), cwd=root)
    find = Call("mcp__ralph_memory.search_feature_memory", {"query": "csv None"})
    script = Run(steps=(Step(calls=(find,)), Step(text="Seen.")))
    words = ["exec", "--json", "--skip-git-repo-check", "What of the csv?"]
    codex.world.run([*codex.playing(script), client("codex"), *words], cwd=root)
    assert "writes None as an empty cell" in codex.asked(0)[1].results[-1]


def test_its_hooks_save_a_session_and_tell_the_next_one(codex: Codex, root: Path) -> None:
    # The first session has the project's hooks (`ralph` by name), the second the person's own.
    world = codex.world
    world.environ["PATH"] += f":{Path(sys.executable).parent}"
    world.run(ralph("hooks", "install", "--agent", "codex"), cwd=root)
    with (world.home / ".codex" / "config.toml").open("a", encoding="utf-8") as file:
        file.write(f'[projects."{root}"]\ntrust_level = "trusted"\n')
    change = [
        *("rm Makefile", "ralph hooks uninstall --agent codex"),
        "ralph hooks install --user --agent codex",
    ]
    make = Call("exec_command", {"cmd": "make export"})
    fix = "Fixed: the csv export had no rule in the Makefile, so I wrote one and it passes now."
    steps = (
        Step(calls=(make,)),
        Step(calls=(Call("apply_patch", MAKEFILE),)),
        Step(calls=(make,)),
        Step(text=fix),
    )
    runs = Run(when="csv export work", steps=steps), Run(steps=(steps[0], Step(text="I see.")))
    ask = "Please make the csv export work."
    again = "The csv export again fails, what did we do in the Makefile?"
    codex.world.environ |= roomy()
    # Only a person can trust hooks.
    trust = "--dangerously-bypass-hook-trust"
    words = ["exec", "--skip-git-repo-check", "-s", "workspace-write", trust]
    first, second = (shlex.join([client("codex"), *words, text]) for text in (ask, again))
    asks = " && ".join([first, *change, second])
    codex.world.run([*codex.playing(*runs), "sh", "-c", asks], cwd=root)
    one, two = sorted(exchanges(root), key=lambda one: one.started or "")
    assert (one.user, one.assistant, one.status) == (ask, fix, "complete")
    [error] = one.errors
    assert error.message == "No rule to make target 'export'.  Stop."
    assert error.resolution is not None
    assert [(file.path, file.action) for file in one.files_touched] == [("Makefile", "created")]
    told = codex.asked(1)
    assert "had no rule in the Makefile" in told[0].shown
    # With the prompt, and again when the command fails as it did before.
    assert [one.shown.count("Edited Makefile") for one in told] == [1, 2]
    assert (two.user, two.assistant) == (again, "I see.")

    # Its own files have the same, which is not saved twice.
    codex.world.run(ralph("conversations", "import", "codex"), cwd=root)
    assert len(exchanges(root)) == 2
