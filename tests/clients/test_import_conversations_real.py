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
