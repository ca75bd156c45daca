"""`ralph chat` in a real terminal: pastes, Ctrl-C on a line, and Markdown as it arrives."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from chat_server import MODEL, ChatServer
from hypothesis import given
from hypothesis import strategies as st
from terminal import LONG_S, at_terminal

from ralph.chat.loop import SOURCE
from ralph.doors.cli.markdown import MarkdownStream
from ralph.memory.ralph import open_ralph

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="terminals of POSIX")

PROMPT = "> \x1b[0m"
TRACEBACK = (
    'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    import nope\n'
    "ModuleNotFoundError: No module named 'nope'"
)
# A Python whose line editor is libedit, which knows no pastes.
LIBEDIT = "import readline; readline.__doc__ = 'libedit'; import ralph.__main__ as m; m.main()"


def prompts(project: Path) -> list[str]:
    """What the person asked, as it was saved."""
    with open_ralph(project) as ralph:
        talks = [one.conversation for one in ralph.conversations.list()]
        own = [talk.id for talk in talks if talk.source == SOURCE]
        return [exchange.user for talk in own for exchange in ralph.conversations.exchanges(talk)]


@posix_only
@pytest.mark.parametrize("program", [("-m", "ralph"), ("-c", LIBEDIT)], ids=["readline", "libedit"])
def test_a_pasted_traceback_is_one_prompt(project: Path, program: Sequence[str]) -> None:
    with at_terminal(["chat", "--model", "echo"], cwd=project, program=program) as (chat, screen):
        # A terminal marks what is pasted for a program that asks for it.
        asked = "\x1b[?2004h" in screen.until(PROMPT)
        screen.type(f"\x1b[200~{TRACEBACK}\x1b[201~\n" if asked else f"{TRACEBACK}\n")
        screen.until("tokens")
        screen.until(PROMPT)
        screen.type("/quit\n")
        assert chat.wait(timeout=LONG_S) == 0

    assert prompts(project) == [TRACEBACK]


@posix_only
def test_ctrl_c_clears_a_line_that_has_begun_and_ends_an_empty_one(project: Path) -> None:
    with at_terminal(["chat", "--model", "echo"], cwd=project) as (chat, screen):
        screen.until(PROMPT)
        screen.type("delete every")
        screen.until("delete every")
        screen.press("\x03", PROMPT)
        screen.type("what is left?\n")
        screen.until("tokens")
        screen.until(PROMPT)
        screen.press("\x03", "To continue: ")
        assert chat.wait(timeout=LONG_S) == 0

    assert prompts(project) == ["what is left?"]


@posix_only
def test_an_answer_is_markdown_on_a_terminal_alone(project: Path, server: ChatServer) -> None:
    answer = "# The cause\n\n- the **pool** is `None`\n\n```py\nx ** 2\n```"
    server.say(answer)
    server.say(answer)
    words = ["chat", "--model", f"openai:{MODEL}"]
    environ = {"RALPH_CHAT_BASE_URL": server.url}
    with at_terminal(words, cwd=project, environ=environ) as (chat, screen):
        screen.until(PROMPT)
        screen.type("why?\n")
        shown = screen.until("tokens")
        screen.until(PROMPT)
        screen.type("/quit\n")
        assert chat.wait(timeout=LONG_S) == 0
    with at_terminal(words, cwd=project, environ={**environ, "NO_COLOR": "1"}) as (chat, screen):
        screen.until("> ")
        screen.type("why?\n")
        raw = screen.until("tokens")

    assert "\x1b[1;36mThe\x1b[0m \x1b[1;36mcause\x1b[0m\r\n" in shown
    assert "\u2022 the \x1b[1mpool\x1b[0m is \x1b[36mNone\x1b[0m\r\n" in shown
    assert "\x1b[36mx ** 2\x1b[0m\r\n" in shown
    assert answer.replace("\n", "\r\n") in raw


# -- Markdown as it arrives


def printed(*pieces: str, width: int = 40) -> str:
    """What is on the terminal after these pieces."""
    out: list[str] = []
    stream = MarkdownStream(out.append, lambda: width)
    for piece in pieces:
        stream.feed(piece)
    stream.end()
    return "".join(out)


def unstyled(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("2**3 is 8, a*b*c, an open `tick and an open **star", None),
        ("snake_case_names and __init__ and *args, **kwargs", None),
        ("**bold** and *soft* and `a*b`", "bold and soft and a*b"),
        ("> quoted", "\u2502 quoted"),
        ("1. one\n2) two", "1. one\n2) two"),
        ("  - inner", "  \u2022 inner"),
        ("| a | b |\n|---|---|", None),
        ("a\n---\nb", None),
        ("#hashtag and # no heading", None),
        ("```\n# code **as it is**\n```\n# Head", "```\n# code **as it is**\n```\nHead"),
        ("~~~\n```\n~~~", None),
        ("```now``` and **then**", "now and then"),
        (" * one\n ```\n code\n ```", " \u2022 one\n ```\n code\n ```"),
    ],
)
def test_marks_that_mean_something_are_styled_and_the_rest_stays(
    markdown: str, shown: str | None
) -> None:
    whole = unstyled(printed(markdown, width=100))

    assert whole == f"{shown or markdown}\n"
    assert unstyled(printed(*markdown, width=100)) == whole


def test_a_long_line_is_wrapped_between_words_and_within_its_item() -> None:
    lines = unstyled(printed("- " + "word " * 20, width=30)).splitlines()

    assert all(len(line.rstrip()) <= 30 for line in lines)
    assert [line[:6] for line in lines] == ["\u2022 word"] + ["  word"] * (len(lines) - 1)


def test_words_appear_before_their_line_is_complete() -> None:
    out: list[str] = []
    stream = MarkdownStream(out.append, lambda: 80)

    stream.feed("It is the connection po")
    assert "".join(out) == "It is the connection "
    stream.feed("ol, **but on")
    assert "".join(out) == "It is the connection pool, "


@given(st.lists(st.text("ab *`#->1.|\n~_", max_size=30), max_size=8))
def test_nothing_is_lost_and_nothing_depends_on_the_pieces(pieces: list[str]) -> None:
    text = "".join(pieces)
    shown = printed(*pieces, width=1000)

    assert shown == printed(text, width=1000)
    kept = re.sub(r"[^ab1]", "", unstyled(shown))
    assert kept == re.sub(r"[^ab1]", "", text)
