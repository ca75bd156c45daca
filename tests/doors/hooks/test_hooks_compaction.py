"""After a compaction, a session is told again what its summary may lack, in few tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hooking import Session, log

from ralph.memory.ralph import open_ralph
from ralph.text.tokens import estimate_tokens

FAILED = (
    "Exit code 1\nFAILED tests/test_export.py::test_rounding - assert 0.30000000000000004 == 0.3"
)
RULE = "Never use floats for prices."


def long_session(project: Path, folder: Path) -> Session:
    """A session whose last turn is still going on when it is compacted."""
    session = Session(project, folder)
    session.prompts("Write the invoice export")
    session.writes("shop/export.py")
    session.says("I wrote the export.")
    session.hook("stop", last_assistant_message="I wrote the export.")
    session.prompts(RULE)
    session.writes("shop/prices.py")
    session.runs("npm run build", "built in 2 s")
    session.runs("pytest -q", FAILED, failed=True)
    return session


def summarized(session: Session, text: str) -> None:
    """The summary as the client writes it down."""
    session._write("user", {"role": "user", "content": text}, isCompactSummary=True)


@pytest.mark.parametrize("trigger", ["auto", "manual"])
def test_decisions_commands_and_files_come_back(
    project: Path, tmp_path: Path, trigger: str
) -> None:
    session = long_session(project, tmp_path)
    session.hook("pre-compact", trigger=trigger)

    text = session.hook("session-start", source="compact").context

    assert f'- "{RULE}"' in text
    assert "- `pytest -q` failed: " in text
    assert "test_rounding" in text
    assert "- `npm run build` passed" in text
    assert "shop/prices.py, shop/export.py" in text
    assert text.startswith("Ralph, the memory of this project, kept this of the session")
    assert estimate_tokens(text) <= 300
    assert log(project) == []


def test_what_the_summary_has_is_not_told_again(project: Path, tmp_path: Path) -> None:
    session = long_session(project, tmp_path)
    session.hook("pre-compact", trigger="manual")
    summarized(
        session,
        "Summary: the user said: never use floats for prices. shop/export.py was written.",
    )

    text = session.hook("session-start", source="compact").context

    assert RULE not in text
    assert "shop/export.py" not in text
    assert "shop/prices.py" in text
    assert "`pytest -q` failed" in text


def test_rules_of_earlier_sessions_come_back_too(project: Path, tmp_path: Path) -> None:
    earlier = Session(project, tmp_path, began="2026-11-01T10:00:00Z")
    earlier.prompts("Add the changelog")
    earlier.says("Added.")
    earlier.prompts("Always write an entry in the changelog.")
    earlier.says("Understood.")
    earlier.hook("stop", last_assistant_message="Understood.")
    session = long_session(project, tmp_path)

    text = session.hook("session-start", source="compact").context

    assert '"Always write an entry in the changelog."' in text
    assert text.index(RULE) < text.index("changelog")


def test_a_long_session_stays_within_its_tokens(project: Path, tmp_path: Path) -> None:
    session = Session(project, tmp_path)
    for number in range(30):
        session.prompts(f"Never use the old client number {number} in any of the new modules.")
        session.writes(f"shop/module_with_a_long_name_{number}.py")
        session.runs(f"pytest tests/test_module_{number}.py -q", "1 passed")
        session.says("Done.")
    session.hook("stop", last_assistant_message="Done.")
    text = session.hook("session-start", source="compact").context
    assert 100 < estimate_tokens(text) <= 300


@pytest.mark.parametrize("setting", ["RALPH_HOOK_COMPACTION", "RALPH_HOOK_INJECT"])
def test_a_setting_turns_it_off(project: Path, tmp_path: Path, setting: str) -> None:
    session = long_session(project, tmp_path)
    hooked = session.hook("session-start", source="compact", environ={setting: "false"})
    assert hooked.context == ""


def test_a_session_without_anything_says_nothing(project: Path, tmp_path: Path) -> None:
    session = Session(project, tmp_path)
    session.prompts("what does this project do?")
    session.says("It is a shop.")
    assert session.hook("session-start", source="compact").context == ""
    with open_ralph(project) as ralph:
        assert ralph.conversations is not None


def test_a_damaged_summary_or_transcript_does_no_harm(project: Path, tmp_path: Path) -> None:
    session = long_session(project, tmp_path)
    with session.transcript.open("a", encoding="utf-8") as file:
        file.write('{"isCompactSummary": true, "message": 3}\n')
        file.write(json.dumps({"isCompactSummary": True, "message": {"content": [1, {}]}}) + "\n")
        file.write('{"isCompactSummary": tr\n')
    assert RULE in session.hook("session-start", source="compact").context
    with session.transcript.open("a", encoding="utf-8") as file:
        file.write('{"isCompactSummary": true, "message": {"content": null}}\n')
    assert RULE in session.hook("session-start", source="compact").context
    session.transcript.unlink()
    session.hook("session-start", source="compact")
    assert log(project) == []
