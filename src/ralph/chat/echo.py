"""A model that is none: it repeats what memory found, to try memory without a model and in tests.

Asked `!TOOL {"argument": "value"}`, it calls that tool if it is on offer, and repeats its answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ralph.chat.model import OnText, Said, ToolCall, ToolSpec, Turn, check, tool_call

# The heading under which memory speaks, wherever it stands.
_FOUND = re.compile(r"^(?P<marks>#*) *Related Past Conversations\b", re.MULTILINE)
_ORDER = re.compile(r"!(\w+)\s*(.*)", re.DOTALL)


class EchoModel:
    """Says what it was shown; the same every time, at once, for nothing."""

    name = "echo"
    takes_tools = True
    costs = "free"

    def answer(
        self,
        messages: Sequence[Turn],
        *,
        tools: Sequence[ToolSpec] = (),
        on_text: OnText | None = None,
        timeout_s: float,
    ) -> Said:
        """What memory found, and what was said; or the call that was ordered, or its answer."""
        check(messages)
        last = messages[-1]
        calls = _ordered(last, tools)
        text = "" if calls else _repeated(messages)
        if on_text is not None:
            for line in text.splitlines(keepends=True):
                on_text(line)
        return Said(
            text=text,
            calls=calls,
            tokens_in=sum(len(turn.text.split()) for turn in messages),
            tokens_out=len(text.split()),
            cost_usd=0.0,
            model=self.name,
            stop="tools" if calls else "end",
        )


def _ordered(last: Turn, tools: Sequence[ToolSpec]) -> tuple[ToolCall, ...]:
    order = _ORDER.fullmatch(_asked(last)) if last.role == "user" else None
    if order is None or order[1] not in {tool.name for tool in tools}:
        return ()
    return (tool_call("", order[1], order[2]),)


def _repeated(messages: Sequence[Turn]) -> str:
    last = messages[-1]
    if last.role == "tool":
        return f"The tool {'failed' if last.failed else 'answered'}:\n{last.text}"
    # What it repeated before is said, not found.
    shown = [turn for turn in messages[:-1] if turn.role == "system"] + [last]
    found = "\n\n".join(filter(None, (_section(turn.text) for turn in shown)))
    told = f"Memory found:\n\n{found}" if found else "Memory found nothing."
    return f"{told}\n\nYou said: {_asked(last)}"


def _asked(turn: Turn) -> str:
    """What the person said, without what memory said after it."""
    heading = _FOUND.search(turn.text)
    return (turn.text[: heading.start()] if heading else turn.text).strip()


def _section(text: str) -> str:
    """What memory found in this turn: from its heading to the next one like it."""
    begun = _FOUND.search(text)
    if begun is None:
        return ""
    rest = text[begun.start() :]
    marks = begun["marks"]
    ends = re.search(rf"^#{{1,{len(marks)}}} ", rest[begun.end() - begun.start() :], re.MULTILINE)
    if not marks or ends is None:
        return rest.strip()
    return rest[: begun.end() - begun.start() + ends.start()].strip()
