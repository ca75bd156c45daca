"""Sessions that an older version read badly: importing them again fills them, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from importing import Kept, aged, import_sessions, write

from ralph.capture.lines import READER_VERSION
from ralph.memory.conversation_stream import (
    RENEWED,
    ConversationContent,
    ConversationImport,
    ConversationStream,
)
from ralph.memory.sessions import read_marks, write_marks
from ralph.records.conversation import (
    Conversation,
    Exchange,
    Label,
    Rating,
    conversation_id,
    exchange_id,
    record_of,
)

SESSION = "01a01086-1721-79d1-aa3c-14a669a6db52"
PLUGINS = "<recommended_plugins>\nHere is a list of plugins.\n</recommended_plugins>"
PROMPT = "Fix the failing parser test"
PATCH = "*** Begin Patch\n*** Update File: app/parser.py\n@@\n-old()\n+new()\n*** End Patch"


def line(kind: str, second: int, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-07-22T10:00:{second:02}Z", "type": kind, "payload": payload}


def words(second: int, role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    return line("response_item", second, type="message", role=role, content=content)


def rollout(folder: Path) -> list[dict[str, Any]]:
    """A session of Codex 0.147, which runs its tools in scripts."""
    script = f"const r = await tools.apply_patch({json.dumps(PATCH)}); text(r)"
    call = {"type": "custom_tool_call", "name": "exec", "call_id": "c1", "input": script}
    said = [
        {"type": "input_text", "text": "Success. Updated the following files:\nM app/parser.py"}
    ]
    back = {"type": "custom_tool_call_output", "call_id": "c1", "output": said}
    return [
        line("session_meta", 0, id=SESSION, cwd=str(folder), cli_version="0.147.0"),
        words(1, "user", PLUGINS),
        words(2, "user", PROMPT),
        line("event_msg", 2, type="user_message", message=PROMPT),
        line("response_item", 3, **call),
        line("response_item", 4, **back),
        words(5, "assistant", "The parser is fixed."),
        line("event_msg", 6, type="task_complete"),
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = rollout(tmp_path)
    return write(tmp_path / "sessions" / f"rollout-2026-07-22T10-00-00-{SESSION}.jsonl", lines)


def bring_in(kept: Kept, file: Path) -> ConversationImport:
    return import_sessions("codex", kept.memory, folder=file.parent)


def stored(kept: Kept) -> ConversationStream:
    [name] = kept.streams()
    return ConversationStream(name, kept.store)


@pytest.fixture
def shell(kept: Kept, file: Path, tmp_path: Path) -> str:
    """What a version of Ralph saved that did not know such sessions; returns the exchange's id."""
    other = Kept(tmp_path / "other-home")
    bring_in(other, file)
    [exchange] = other.exchanges()
    [name] = other.streams()
    talk = conversation_id("codex", SESSION)
    first = len(json.dumps(rollout(tmp_path)[0])) + 1
    nobody = exchange_id(talk, f"{SESSION}@{first}")
    question = Exchange(conversation=talk, id=nobody, user=PLUGINS, status="interrupted")
    empty = msgspec.structs.replace(exchange, files_touched=(), errors=(), decisions=())
    conversation = Conversation(id=talk, title=PLUGINS[:60], source="codex")
    ConversationStream(name, kept.store).save(
        [ConversationContent(conversation, [question, empty])]
    )
    return exchange.id


def test_an_empty_shell_is_filled(kept: Kept, file: Path, shell: str) -> None:
    came = bring_in(kept, file)

    assert (came.exchanges, came.renewed, came.known) == (1, 1, 0)
    [exchange] = kept.exchanges()
    assert exchange.user == PROMPT
    assert [one.path for one in exchange.files_touched] == ["app/parser.py"]
    assert [one.title for one in kept.conversations()] == [PROMPT]
    assert stored(kept).reasons()[shell] == RENEWED


def test_it_is_filled_once(kept: Kept, file: Path, shell: str) -> None:
    bring_in(kept, file)
    lines = kept.lines()
    for _ in range(2):
        aged(file, 7000.0)
        came = bring_in(kept, file)
        assert (came.exchanges, came.renewed, came.known) == (0, 0, 0)
        # Nor when nobody knows any more what was read.
        (kept.home / "cache" / "imports" / "codex.json").unlink()
        came = bring_in(kept, file)
        assert (came.exchanges, came.renewed, came.known) == (0, 0, 1)
    assert kept.lines() == lines


def test_it_is_filled_after_a_crash_between_writing_and_removing(
    kept: Kept, file: Path, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ConversationStream, "forget", crash)
        with pytest.raises(KeyboardInterrupt):
            bring_in(kept, file)
    assert len(kept.exchanges()) == 3
    bring_in(kept, file)
    assert [one.user for one in kept.exchanges()] == [PROMPT]


def test_what_a_person_forgot_stays_forgotten(kept: Kept, file: Path, shell: str) -> None:
    stored(kept).forget([shell], reason="private")
    assert bring_in(kept, file).exchanges == 0
    assert kept.exchanges() == []


def test_what_a_person_forgot_after_it_was_filled_stays_forgotten(
    kept: Kept, file: Path, shell: str
) -> None:
    bring_in(kept, file)
    [exchange] = kept.exchanges()
    stored(kept).forget([exchange.id])
    (kept.home / "cache" / "imports" / "codex.json").unlink()
    assert bring_in(kept, file).exchanges == 0
    assert kept.exchanges() == []


def test_a_title_that_a_person_gave_stays(kept: Kept, file: Path, shell: str) -> None:
    stream = stored(kept)
    label = Label(target=conversation_id("codex", SESSION), title="My parser")
    stream.append([record_of(label, id="0123456789abcdef")])
    bring_in(kept, file)
    assert [one.title for one in kept.conversations()] == ["My parser"]


def test_a_rating_stays(kept: Kept, file: Path, shell: str) -> None:
    stored(kept).append([record_of(Rating(target=shell, value=1), id="0123456789abcdef")])
    bring_in(kept, file)
    [exchange] = kept.exchanges()
    assert stored(kept).history.ratings == {exchange.id: 1}


def test_files_are_read_again_by_a_newer_reader_only(kept: Kept, file: Path) -> None:
    assert bring_in(kept, file).exchanges == 1
    assert bring_in(kept, file).unchanged == 1
    marks_file = kept.home / "cache" / "imports" / "codex.json"
    marks = read_marks(marks_file)
    assert [mark.reader for mark in marks.values()] == [READER_VERSION]
    older = {name: msgspec.structs.replace(mark, reader=0) for name, mark in marks.items()}
    write_marks(marks_file, older)
    came = bring_in(kept, file)
    assert (came.unchanged, came.known, came.exchanges) == (0, 1, 0)
