"""UserPromptSubmit: whether a prompt says anything that memory could be asked for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ralph import disk

if TYPE_CHECKING:
    from ralph.doors.hooks.call import Call

# Words that go on with what is being done and say nothing about what it is.
_EMPTY = frozenset(
    """
    a about again ahead all alright also am an and any are as at be but by can carry change changes
    check commit continue cool correct could did do does done else every everything exactly far fine
    first fix fixed for from further get go good great had has have he hello hey hi how i if in into
    is it its just keep last let lets like look looks make makes me more much my never next nice no
    nope not now of off ok okay old on one only or other our out over perfect please pls proceed
    push redo rerun retry right run same see she should so some start still stop such sure test
    tests thank thanks that the their them then there these they thing things this those thx to too
    try two undo up us use very wait was we well were what whats when where which while who why will
    with wonderful work works would wrong yeah yep yes yet you your
    """.split()
)
_SHORTEST_WORD = 3


def answer(call: Call) -> str:
    """The few things memory has on the prompt, or nothing."""
    call.sessions.prompted(call.session, call.transcript)
    prompt = call.text("prompt")
    if not says_something(prompt) or not _remembers(call):
        return ""
    from ralph.doors.hooks.recalling import recalled

    return recalled(call, prompt)


def says_something(prompt: str) -> bool:
    """Whether the prompt has a word of its own; a command of the client's has none."""
    first = prompt.split(maxsplit=1)[:1]
    if not first or (first[0][0] == "/" and "/" not in first[0][1:]):
        return False
    plain = "".join(c if c.isalnum() else " " for c in prompt[:4000].replace("'", "").lower())
    return any(
        word not in _EMPTY and (len(word) >= _SHORTEST_WORD or not word.isascii())
        for word in plain.split()
    )


def _remembers(call: Call) -> bool:
    """Whether there is any journal that could be asked."""
    from ralph.doors.hooks.serving import on_a_server

    if on_a_server(call.home):
        return True
    folders = (
        os.path.join(call.root, ".ralph", "db", "memory"),
        os.path.join(call.home, "journal", "conversations"),
    )
    for folder in folders:
        try:
            if any(name.endswith(".jsonl") for name in disk.names(folder)):
                return True
        except OSError:
            continue
    return False
