"""Sessions that the real Codex has just held, brought in; no network but loopback."""

from __future__ import annotations

import json
import sys

import pytest
from clients import client, ralph
from scripted_model import Call, Run, Step

if sys.platform == "win32":
    pytest.skip("there are no network namespaces", allow_module_level=True)

from codex import MAKEFILE, Codex


def test_what_codex_wrote_of_a_session_and_its_resumption_comes_in(codex: Codex) -> None:
    root = codex.world.folder / "shop"
    root.mkdir()
    first = (
        Step(text="I try.", calls=(Call("exec_command", {"cmd": "make export"}),)),
        Step(calls=(Call("apply_patch", MAKEFILE),)),
        Step(text="The export works now."),
    )
    exec_words = [client("codex"), "exec", "--skip-git-repo-check", "-s", "workspace-write"]
    codex.world.run(
        [*codex.playing(Run(steps=first)), *exec_words, "Make the export work."], cwd=root
    )
    again = Run(steps=(*first, Step(text="It is in the Makefile.")))
    words = ["resume", "--last", "Where is the rule?"]
    codex.world.run([*codex.playing(again), *exec_words, *words], cwd=root)

    ran = codex.world.run(ralph("conversations", "import", "codex", "--json"), cwd=root)
    out = codex.world.run(ralph("conversations", "export", "-", "--everywhere"), cwd=root)

    came = json.loads(ran.stdout)
    told = {name: came[name] for name in ("conversations", "exchanges", "unread", "complaints")}
    assert told == {"conversations": 1, "exchanges": 2, "unread": [], "complaints": []}
    [conversation] = json.loads(out.stdout)["conversations"]
    assert (conversation["source"], conversation["project"]) == ("codex", "shop")
    one, two = conversation["exchanges"]
    assert (one["user"], one["assistant"]) == ("Make the export work.", "The export works now.")
    assert [error["message"] for error in one["errors"]] == [
        "No rule to make target 'export'.  Stop."
    ]
    assert one["files_touched"] == [{"path": "Makefile", "action": "created"}]
    assert (one["tokens_used"], one["model"], one["status"]) == (360, "gpt-5.5", "complete")
    assert (two["user"], two["assistant"]) == ("Where is the rule?", "It is in the Makefile.")


def test_what_a_model_called_in_scripts_comes_in(codex: Codex) -> None:
    root = codex.world.folder / "shop"
    root.mkdir()
    config = codex.world.home / ".codex" / "config.toml"
    text = config.read_text(encoding="utf-8")
    in_scripts = "[features]\ncode_mode = true\ncode_mode_only = true\n"
    config.write_text(text.replace("[features]\n", in_scripts), encoding="utf-8")
    patch = json.dumps(MAKEFILE)
    run = Run(
        steps=(
            Step(calls=(script('text((await tools.exec_command({cmd: "make export"})).output);'),)),
            Step(calls=(script(f"const patch = {patch};\nawait tools.apply_patch(patch);"),)),
            Step(calls=(script('["export", "other"].map(t => tools.exec_command({cmd: t}));'),)),
            Step(text="The export works now."),
        )
    )
    exec_words = [client("codex"), "exec", "--skip-git-repo-check", "-s", "workspace-write"]
    codex.world.run([*codex.playing(run), *exec_words, "Make the export work."], cwd=root)

    ran = codex.world.run(ralph("conversations", "import", "codex", "--json"), cwd=root)
    out = codex.world.run(ralph("conversations", "export", "-", "--everywhere"), cwd=root)

    came = json.loads(ran.stdout)
    assert (came["exchanges"], came["complaints"], came["drift"]) == (1, [], [])
    [conversation] = json.loads(out.stdout)["conversations"]
    [one] = conversation["exchanges"]
    assert (one["user"], one["assistant"]) == ("Make the export work.", "The export works now.")
    assert "No rule to make target 'export'.  Stop." in [each["message"] for each in one["errors"]]
    assert one["files_touched"] == [{"path": "Makefile", "action": "created"}]


def script(text: str) -> Call:
    return Call("exec", text)
