"""`ralph chat`: a conversation with a model that remembers the earlier ones."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.answers import SHORT_ID
from ralph.doors.cli.opening import as_json, start_folder, the_project, warnings_told
from ralph.doors.cli.page import Page, count, excerpt, is_terminal, note, to_json
from ralph.doors.cli.tree import Command, project_given

if TYPE_CHECKING:
    from ralph.chat.loop import Chat, Done, Screen
    from ralph.chat.model import Model, ToolCall
    from ralph.memory.conversation_history import Related
    from ralph.memory.ralph import Ralph

_INTERRUPTED = 130
_PROMPT = "> "


@click.command(cls=Command)
@click.option("--model", metavar="NAME", help="The model, as chat_model names it.")
@click.option("--conversation", metavar="ID", help="Go on with this conversation.")
@click.option("--title", default="", help="What the conversation is called; else its first prompt.")
@click.option("--echo", is_flag=True, help="No model: answer with what memory found.")
@click.option("--no-rag", is_flag=True, help="Do not recall anything.")
@click.option("--everywhere", is_flag=True, help="Recall from all projects.")
@as_json
def chat(
    model: str | None,
    conversation: str | None,
    title: str,
    echo: bool,
    no_rag: bool,
    everywhere: bool,
    as_json: bool,
) -> None:
    """Talk with a model that remembers past conversations.

    Before every answer it is told what was said earlier on the question. Each exchange is kept.
    /help lists what can be typed besides prompts. Input that is no terminal is read as one prompt
    a line; --json then prints one JSON object for each.
    """
    from ralph.chat.choose import choose_model, how_to_configure
    from ralph.chat.echo import EchoModel
    from ralph.chat.loop import Chat
    from ralph.chat.opening import open_memory, settings_of

    if echo and model is not None:
        raise click.UsageError("--echo needs no --model; leave one of the two out.")
    start = _start()
    given: dict[str, Any] = {} if model is None else {"chat_model": model}
    speaker: Model | None = EchoModel() if echo else choose_model(settings_of(start, **given))
    if speaker is None:
        click.echo(how_to_configure(), err=True)
        raise click.exceptions.Exit(1)
    by_hand = not as_json and is_terminal(sys.stdin) and is_terminal(sys.stdout)
    read = _typed() if by_hand else _piped()
    screen: Screen = _Json(read) if as_json else _Terminal(read) if by_hand else _Plain(read)
    with warnings_told():
        talk = Chat(
            lambda: open_memory(start, **given),
            speaker,
            screen,
            conversation=conversation,
            title=title,
            everywhere=everywhere,
            rag=not no_rag,
        )
        try:
            with _workers(talk, start, given):
                code = _hold(talk, read, by_hand=by_hand)
        finally:
            talk.close()
    if code:
        raise click.exceptions.Exit(code)


def _start() -> Path:
    """Where the chat is held; a project that was named must be one."""
    if project_given() or os.environ.get("RALPH_PROJECT"):
        return the_project().root
    return start_folder()


@contextlib.contextmanager
def _workers(talk: Chat, start: Path, given: dict[str, Any]) -> Iterator[None]:
    """The workers at work behind the chat; it is held without them where they cannot be had."""
    from ralph.chat.choose import choose_summariser
    from ralph.chat.commands import Commands
    from ralph.chat.opening import open_memory
    from ralph.chat.workers import Workers
    from ralph.errors import RalphError
    from ralph.memory.conversation_stream import prune_if_due

    def open_waiting() -> Ralph:
        return open_memory(start, waits=True, **given)

    with contextlib.ExitStack() as stack:
        try:
            with open_waiting() as ralph:
                prune_if_due(ralph.conversations)
            summariser = choose_summariser(talk.settings)
            workers = Workers(open_waiting, current=talk.current, summariser=summariser)
            stack.enter_context(workers)
            talk.controls = Commands(workers, open_waiting)
        except (RalphError, OSError) as error:
            talk.screen.note(f"nothing is summarised or indexed in the background: {error}")
        yield


def _hold(talk: Chat, read: Callable[[str], str | None], *, by_hand: bool) -> int:
    """The conversation until its end; gives the exit code."""
    from ralph.chat.slash import obey
    from ralph.errors import RalphError

    if by_hand:
        _greet(talk)
    if talk.paused:
        talk.screen.note("memory is paused: nothing is kept or recalled (ralph resume)")
    failed = False
    while not talk.over:
        try:
            line = read(_PROMPT)
        except KeyboardInterrupt:
            line = None
        if line is None:
            break
        if not line.strip():
            continue
        try:
            if line.startswith("/"):
                obey(talk, line)
                continue
            done = talk.ask(line.strip())
        except RalphError as error:
            talk.screen.note(str(error))
            failed = True
            continue
        except KeyboardInterrupt:  # an answer under way takes care of itself
            if not by_hand:
                return _INTERRUPTED
            talk.screen.note("interrupted")
            continue
        failed = failed or done.status == "failed"
        if done.status == "interrupted" and not by_hand:
            return _INTERRUPTED
    if by_hand:
        _part(talk)
        return 0
    return 1 if failed else 0


def _greet(talk: Chat) -> None:
    page = Page()
    held = len(talk.memory.conversations.list(everywhere=talk.everywhere))
    recall = f"{count(held, 'conversation')} remembered" if talk.remembers else "recalls nothing"
    page.line(("ralph chat", "bold"), (f"  {talk.model.name}  {recall}  /help, /quit", "dim"))
    if talk.session.begun:
        page.line((f"going on with: {talk.session.title or talk.session.id}", "dim"))


def _part(talk: Chat) -> None:
    page = Page()
    page.line()
    if talk.session.begun:
        page.line(
            (f"Kept: {excerpt(talk.session.title, 80) or '(no title)'}", "dim"),
            (f"  ralph chat --conversation {talk.session.id[:SHORT_ID]} goes on", "dim"),
        )


# -- what is typed


def _typed() -> Callable[[str], str | None]:
    """Lines from a person, with an editor where there is one. No line is written to a file."""
    from ralph.chat.slash import COMMANDS

    marks = ("", "")
    if sys.platform != "win32" and _editor([f"/{name}" for name in COMMANDS]):
        colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        marks = ("\001\033[1;36m\002", "\001\033[0m\002") if colour else marks

    def read(prompt: str) -> str | None:
        try:
            return input(f"{marks[0]}{prompt}{marks[1]}")
        except EOFError:
            return None

    return read


if sys.platform != "win32":

    def _editor(words: Sequence[str]) -> bool:
        """Let these words be completed, if this Python has an editor of lines."""
        try:
            import readline
        except ImportError:
            return False

        def complete(text: str, state: int) -> str | None:
            fitting = [word for word in words if word.startswith(text)] if text else []
            return fitting[state] if state < len(fitting) else None

        readline.set_completer_delims(" ")
        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")
        return True


def _piped() -> Callable[[str], str | None]:
    """Lines from a file, a pipe or a program."""
    reconfigure = getattr(sys.stdin, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")

    def read(prompt: str) -> str | None:
        line = sys.stdin.readline()
        return line.rstrip("\r\n") if line else None

    return read


# -- what is shown


class _Plain:
    """Answers on stdout, everything else on stderr."""

    def __init__(self, read: Callable[[str], str | None]) -> None:
        self._read = read
        self._page = Page()
        self._at_start = True

    def piece(self, text: str) -> None:
        """A piece of the answer, without anything that a terminal would obey."""
        clean = "".join(c if c.isprintable() or c in "\n\t" else "" for c in text)
        sys.stdout.write(clean)
        sys.stdout.flush()
        if clean:
            self._at_start = clean.endswith("\n")

    def recalled(self, found: Related) -> None:
        """Nothing: a program reads this."""

    def tool(self, call: ToolCall, failed: bool) -> None:
        """Nothing but the end of the line before it."""
        self._fresh_line()

    def done(self, done: Done) -> None:
        """The end of an answer, and why it ended if not well."""
        self._fresh_line()
        if done.error:
            note(done.error)
        elif done.status == "interrupted":
            note("interrupted; what was said is kept" if done.exchange else "interrupted")

    def lines(self, lines: Sequence[str]) -> None:
        """What a command answers."""
        for line in lines:
            self._page.line(line.strip(), indent=len(line) - len(line.lstrip()))

    def note(self, text: str) -> None:
        """One line on stderr."""
        self._fresh_line()
        note(text)

    def confirm(self, question: str) -> str:
        """The next line."""
        sys.stdout.write(question if question.endswith(" ") else f"{question} ")
        sys.stdout.flush()
        return self._read("") or ""

    def _fresh_line(self) -> None:
        if not self._at_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._at_start = True


class _Terminal(_Plain):
    """The same with what memory found and what it cost, in pale."""

    def recalled(self, found: Related) -> None:
        """The titles of what the model is told of."""
        told = "; ".join(
            f"{excerpt(one.conversation.title, 60) or '(no title)'} "
            f"({one.conversation.id[:SHORT_ID]}, {one.similarity:.2f})"
            for one in found.conversations
        )
        self._page.line((f"memory: {told}", "dim"))
        if found.line:
            self._page.line((found.line, "dim"))

    def tool(self, call: ToolCall, failed: bool) -> None:
        """Which tool was used on what."""
        self._fresh_line()
        given = ", ".join(str(value) for value in call.arguments.values())
        ended = " failed" if failed else ""
        self._page.line((f"{call.name}({excerpt(given, 80)}){ended}", "dim"))

    def done(self, done: Done) -> None:
        """The end of an answer and what it took."""
        super().done(done)
        parts = [] if done.tokens_used is None else [f"{done.tokens_used} tokens"]
        if done.cost_usd:
            parts.append(f"${done.cost_usd:.4f}")
        if done.exchange is None:
            parts.append("not kept")
        if parts:
            self._page.line((", ".join(parts), "dim"))

    def confirm(self, question: str) -> str:
        """What is typed; the editor knows prompts of one line only."""
        *before, last = question.split("\n")
        self.lines(before)
        return self._read(last if last.endswith(" ") else f"{last} ") or ""


class _Json(_Plain):
    """One JSON object a line for each prompt; notes on stderr."""

    def piece(self, text: str) -> None:
        """Nothing: the answer comes whole."""

    def tool(self, call: ToolCall, failed: bool) -> None:
        """Nothing: the object names the tools."""

    def done(self, done: Done) -> None:
        """The exchange."""
        import msgspec

        self._object(msgspec.to_builtins(done))

    def lines(self, lines: Sequence[str]) -> None:
        """What a command answers."""
        self._object({"lines": list(lines)})

    def confirm(self, question: str) -> str:
        """The next line; the question goes to stderr."""
        note(question)
        return self._read("") or ""

    def _object(self, plain: dict[str, Any]) -> None:
        sys.stdout.write(to_json(plain) + "\n")
        sys.stdout.flush()
