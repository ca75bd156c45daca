"""Match what Codex's scripts printed with the commands that they ran.

A script prints what it likes of its results. So each result is matched with its command as far as
the output allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ralph.capture.lines import content_text, items, mapping, text_of
from ralph.capture.rules import pattern


class ScriptResult(msgspec.Struct, frozen=True):
    """What a command in a script gave; `code` is None where the script did not print it."""

    text: str
    code: int | None = None
    session: str = ""  # the name under which it still runs


class ScriptOutput(msgspec.Struct, frozen=True):
    """What a script printed, part by part; `cell` is the name under which it still runs."""

    texts: tuple[str, ...] = ()
    cell: str = ""
    failed: bool = False

    @property
    def text(self) -> str:
        """Everything that it printed."""
        return "\n".join(self.texts)


def script_output(output: Any) -> ScriptOutput:
    """Return what a script printed, and whether it still runs."""
    parts = [text_of(part.get("text")) for part in items(output)] or [content_text(output)]
    head = parts[0]
    running = pattern("running script").match(head)
    rest = "" if running else without_head(head)
    # An empty part is the output of a command that printed nothing.
    texts = [without_head(text) for text in ([rest] if rest else []) + parts[1:]]
    return ScriptOutput(
        tuple(texts), running[1] if running else "", head.startswith("Script failed")
    )


def without_head(text: str) -> str:
    """Return an output without what the client writes above it."""
    head = pattern("codex output head").match(text)
    return text[head.end() :] if head else text


def results_in(script: str, printed: Sequence[str], wanted: int) -> list[ScriptResult] | None:
    """Return one result for each of the wanted commands; None if the output leaves that open."""
    plain = [one for text in printed for one in _results(text)]
    if len(plain) == wanted:
        return plain
    if not wanted or not printed:
        return None
    if wanted == 1:
        return [_joined(script, printed)]
    if len(printed) % wanted == 0:
        size = len(printed) // wanted
        groups = [printed[at : at + size] for at in range(0, len(printed), size)]
        return [_joined(script, group) for group in groups]
    return None


def _results(text: str) -> Iterator[ScriptResult]:
    """Yield the results of commands that a script printed as JSON."""
    if text[:1] not in ("{", "["):
        return
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return
    for one in items(value) or [mapping(value)]:
        if isinstance(one.get("output"), str):
            yield _result(one)


def _result(data: Mapping[str, Any]) -> ScriptResult:
    code = data.get("exit_code")
    is_code = isinstance(code, int) and not isinstance(code, bool)
    session = data.get("session_id")
    return ScriptResult(
        without_head(text_of(data.get("output"))),
        code if is_code else None,
        str(session)[:20] if isinstance(session, int | str) and not is_code else "",
    )


def _joined(script: str, printed: Sequence[str]) -> ScriptResult:
    plain = [one for text in printed for one in _results(text)]
    if len(plain) == 1:
        return plain[0]
    text = "\n".join(printed)
    code = pattern("printed code").search(text) if "exit_code" in script else None
    session = pattern("printed session").search(text) if "session_id" in script else None
    return ScriptResult(
        text,
        int(code[1]) if code else None,
        session[1] if session and code is None else "",
    )
