"""`ralph chat`, `workers`, `summarizer`, `embeddings`, `rag`: the chat and its workers."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from ralph.chat import model as models
from ralph.chat import open_memory, settings_at
from ralph.chat.commands import WorkerCommands
from ralph.chat.loop import Chat, ExchangeResult
from ralph.chat.workers import ELSEWHERE, FailedItem, Workers, WorkerStatus
from ralph.doors.cli import render
from ralph.doors.cli.cards import SHORT_ID
from ralph.doors.cli.commands.run import stop_on_signals
from ralph.doors.cli.commands.slash import COMMANDS, run_command
from ralph.doors.cli.context import conversations_folder, flag, option, warnings_noted
from ralph.doors.cli.main import INTERRUPTED, Command, Group, wants_json
from ralph.doors.cli.markdown import MarkdownStream
from ralph.doors.cli.render import Page, Result, excerpt, is_terminal, note
from ralph.errors import RalphError
from ralph.memory.conversation_search import Related
from ralph.memory.conversations import prune_if_due
from ralph.text.tokens import plural

_LOOK_S = 0.5
_LISTED = 20
# How soon after a line the next line of a paste arrives.
_PASTE_S = 0.05


@click.command(cls=Command)
@option("--model", "Model to use (default: the setting chat_model).", "NAME")
@option("--conversation", "Continue this conversation.", "ID")
@option("--title", "Title (default: made from the first prompt).", default="")
@flag("--echo", "Answer with what memory finds; needs no model, saves nothing.")
@flag("--no-rag", "Recall nothing.")
@flag("--everywhere", "Recall from all projects.")
def chat(model: str | None, echo: bool, no_rag: bool, **session: Any) -> int:
    """Chat with a model that remembers past conversations.

    Before each answer, the model gets what earlier conversations say about the question. Each
    exchange is saved. Type /help for commands. Piped input is read as one prompt per line; with
    --json each prompt prints one JSON object.

    \b
    Examples:
      ralph chat --model ollama:llama3.2
      echo "How did we fix the timeout?" | ralph chat --echo
    """
    if echo and model is not None:
        raise click.UsageError("--echo needs no --model; leave one of the two out.")
    start = conversations_folder()
    given: dict[str, Any] = {} if model is None else {"chat_model": model}
    settings = settings_at(start, **given)
    chosen: models.ChatModel | None = models.EchoModel() if echo else models.choose_model(settings)
    if chosen is None:
        click.echo(models.how_to_configure(), err=True)
        return 1
    by_hand = not wants_json() and is_terminal(sys.stdin) and is_terminal(sys.stdout)
    screen = (JsonScreen if wants_json() else TerminalScreen if by_hand else PlainScreen)()
    with warnings_noted():
        memory = partial(open_memory, start, **given)
        talk = Chat(memory, chosen, screen, rag=not no_rag, keeps=not echo, **session)
        try:
            return _run(talk, screen, _workers(talk, start, given))
        finally:
            talk.memory.close()


def _workers(talk: Chat, start: Path, given: dict[str, Any]) -> Workers | None:
    """Create the workers behind the chat, or return None; the chat works without them."""
    open_waiting = partial(open_memory, start, waits=True, **given)
    try:
        with open_waiting() as ralph:
            prune_if_due(ralph.conversations)
        summarizer = models.choose_model(talk.settings, "summary")
        workers = Workers(open_waiting, current=lambda: talk.session.id, summarizer=summarizer)
    except (RalphError, OSError) as error:
        talk.screen.note(f"nothing is summarized or indexed in the background: {error}")
        return None
    talk.workers = WorkerCommands(workers, open_waiting)
    return workers


def _run(talk: Chat, screen: PlainScreen, workers: Workers | None) -> int:
    """Run the chat until it ends; return the exit code.

    On a terminal the workers start right away. For a program they start after the first answer,
    which would otherwise compete with them for the index.
    """
    by_hand = isinstance(screen, TerminalScreen)
    waiting = [workers] if workers else []
    failed = False
    with contextlib.ExitStack() as stack:

        def begin() -> None:
            if waiting:
                stack.enter_context(waiting.pop())

        if by_hand:
            begin()
            _greet(talk)
        if talk.paused:
            screen.note("memory is paused: nothing is saved or recalled (ralph resume)")
        while not talk.over:
            status = ""
            line = None
            with contextlib.suppress(KeyboardInterrupt):
                line = screen.read("> ")
            if line is None:
                break
            try:
                if line.startswith("/"):
                    begin()
                    run_command(talk, line)
                elif line.strip():
                    status = talk.ask(line.strip()).status
                    begin()
            except RalphError as error:
                screen.note(str(error))
                status = "failed"
            except KeyboardInterrupt:  # in a command; `ask` handles its own
                status = "interrupted"
                if by_hand:
                    screen.note("interrupted")
            failed = failed or status == "failed"
            if status == "interrupted" and not by_hand:
                return INTERRUPTED
        if by_hand:
            _say_goodbye(talk)
    return 1 if failed and not by_hand else 0


def _greet(talk: Chat) -> None:
    page = Page()
    number = len(talk.memory.conversations.list(everywhere=talk.everywhere))
    recall = f"{plural(number, 'conversation')} remembered" if talk.remembers else "recalls nothing"
    page.line(("ralph chat", "bold"), (f"  {talk.model.name}  {recall}  /help, /quit", "dim"))
    if talk.session.begun:
        page.line((f"continuing: {talk.session.title or talk.session.id}", "dim"))


def _say_goodbye(talk: Chat) -> None:
    page = Page()
    page.line()
    if talk.session.begun:
        title = excerpt(talk.session.title, 80) or "(no title)"
        page.line((f"Saved: {title}", "dim"))
        page.line((f"To continue: ralph chat --conversation {talk.session.id[:SHORT_ID]}", "dim"))


# -- screens


class PlainScreen:
    """Prompts from a file, a pipe or a program; answers on stdout, everything else on stderr."""

    def __init__(self) -> None:
        self._page = Page()
        self._at_start = True
        if (reconfigure := getattr(sys.stdin, "reconfigure", None)) is not None:
            reconfigure(errors="replace")

    def read(self, prompt: str) -> str | None:
        """Read the next line; None at the end."""
        line = sys.stdin.readline()
        return line.rstrip("\r\n") if line else None

    def piece(self, text: str) -> None:
        """Write a piece of the answer, without control characters."""
        clean = "".join(c if c.isprintable() or c in "\n\t" else "" for c in text)
        sys.stdout.write(clean)
        sys.stdout.flush()
        if clean:
            self._at_start = clean.endswith("\n")

    def recalled(self, found: Related) -> None:
        """Show nothing; only a terminal shows it."""

    def tool(self, call: models.ToolCall, failed: bool) -> None:
        """End the line; the tool itself is not shown."""
        self._fresh_line()

    def done(self, done: ExchangeResult) -> None:
        """End the answer, with the reason if it failed."""
        self._fresh_line()
        if done.error:
            note(done.error)
        elif done.status == "interrupted":
            note("interrupted; the partial answer is saved" if done.exchange else "interrupted")

    def lines(self, lines: Sequence[str]) -> None:
        """Show the output of a command."""
        self._page.show(list(lines))

    def note(self, text: str) -> None:
        """Show one line on stderr."""
        self._fresh_line()
        note(text)

    def confirm(self, question: str) -> str:
        """Ask a question and read the next line."""
        sys.stdout.write(question if question.endswith(" ") else f"{question} ")
        sys.stdout.flush()
        return self.read("") or ""

    def _fresh_line(self) -> None:
        if not self._at_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._at_start = True


class TerminalScreen(PlainScreen):
    """For a terminal; also shows, dimmed, what memory found and what the answer cost.

    Lines are typed in a line editor if there is one, and none is saved to a file. Answers are
    Markdown in color, unless the terminal or the user turns color off.
    """

    _marks = ("", "")

    def __init__(self) -> None:
        super().__init__()
        self._markdown: MarkdownStream | None = None
        if not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb":
            stream = render.raw(sys.stdout)
            self._markdown = MarkdownStream(stream.write, lambda: shutil.get_terminal_size()[0])
        self._pastes = False
        if sys.platform == "win32":
            return
        with contextlib.suppress(ImportError):
            import readline

            def complete(text: str, state: int) -> str | None:
                words = [f"/{name}" for name in COMMANDS if text and f"/{name}".startswith(text)]
                return words[state] if state < len(words) else None

            readline.set_completer_delims(" ")
            readline.set_completer(complete)
            readline.parse_and_bind("tab: complete")
            # libedit, which some Pythons have instead, does not support pastes.
            self._pastes = "libedit" not in (readline.__doc__ or "")
            if self._pastes:
                readline.parse_and_bind("set enable-bracketed-paste on")
            if self._markdown is not None:
                self._marks = ("\001\033[1;36m\002", "\001\033[0m\002")

    def read(self, prompt: str) -> str | None:
        """Read the lines that the user types or pastes; None at the end.

        Ctrl-C clears the current line. On an empty line it ends the chat.
        """
        while True:
            try:
                lines = [input(prompt.join(self._marks))]
                while not self._pastes and _more_is_typed():
                    lines.append(input())
                return "\n".join(lines)
            except EOFError:
                return None
            except KeyboardInterrupt:
                if not _typed_line():
                    raise
                sys.stdout.write("\n")

    def piece(self, text: str) -> None:
        """Write a piece of the answer, as Markdown."""
        if self._markdown is None:
            super().piece(text)
            return
        self._markdown.feed("".join(c for c in text.expandtabs(4) if c.isprintable() or c == "\n"))
        sys.stdout.flush()
        self._at_start = False

    def _fresh_line(self) -> None:
        if self._markdown is None:
            super()._fresh_line()
        elif not self._at_start:
            self._markdown.end()
            sys.stdout.flush()
            self._at_start = True

    def recalled(self, found: Related) -> None:
        """Show the titles that the model gets."""
        titles = [
            f"{excerpt(one.conversation.title, 60) or '(no title)'} "
            f"({one.conversation.id[:SHORT_ID]}, {one.similarity:.2f})"
            for one in found.conversations
        ]
        self._page.line((f"memory: {'; '.join(titles)}", "dim"))
        if found.line:
            self._page.line((found.line, "dim"))

    def tool(self, call: models.ToolCall, failed: bool) -> None:
        """Show which tool was used with which arguments."""
        self._fresh_line()
        arguments = ", ".join(str(value) for value in call.arguments.values())
        ending = " failed" if failed else ""
        self._page.line((f"{call.name}({excerpt(arguments, 80)}){ending}", "dim"))

    def done(self, done: ExchangeResult) -> None:
        """End the answer, with its tokens and cost."""
        super().done(done)
        parts = [] if done.tokens_used is None else [f"{done.tokens_used} tokens"]
        parts += [f"${done.cost_usd:.4f}"] if done.cost_usd else []
        parts += ["not saved"] if done.exchange is None else []
        if parts:
            self._page.line((", ".join(parts), "dim"))

    def confirm(self, question: str) -> str:
        """Ask, with the last line as the prompt: the line editor cannot show more."""
        *before, last = question.split("\n")
        self.lines(before)
        return self.read(last if last.endswith(" ") else f"{last} ") or ""


def _typed_line() -> str:
    """Return the text in the line editor, if there is one."""
    editor = sys.modules.get("readline")
    return "" if editor is None else str(editor.get_line_buffer())


def _more_is_typed() -> bool:
    """Whether more input is waiting already, which means that it was pasted."""
    if sys.platform == "win32":
        return False
    import select
    import termios
    import tty

    before = termios.tcgetattr(0)
    try:
        tty.setcbreak(0, termios.TCSANOW)  # otherwise only complete lines would count
        return bool(select.select([0], [], [], _PASTE_S)[0])
    finally:
        termios.tcsetattr(0, termios.TCSANOW, before)


class JsonScreen(PlainScreen):
    """One JSON object per line for each prompt; notes on stderr."""

    def piece(self, text: str) -> None:
        """Do nothing: the whole answer is printed at the end."""

    def tool(self, call: models.ToolCall, failed: bool) -> None:
        """Do nothing: the printed object lists the tools."""

    def done(self, done: ExchangeResult) -> None:
        """Print the exchange."""
        render.print_json_line(msgspec.to_builtins(done))

    def lines(self, lines: Sequence[str]) -> None:
        """Show the output of a command."""
        render.print_json_line({"lines": list(lines)})

    def confirm(self, question: str) -> str:
        """Ask on stderr and read the next line."""
        note(question)
        return self.read("") or ""


# -- workers


@click.group(cls=Group)
def workers() -> None:
    """Run the background workers, or show their status.

    They summarize and index conversations, and also run within `ralph chat`. One process at a time
    works; the others wait.
    """


@workers.command("run")
@click.option("--once", is_flag=True, help="Do the work that is pending, then exit.")
def run_workers(once: bool) -> Result | int:
    """Run the workers that are switched on, until Ctrl-C.

    With --once, do the pending work and exit: with status 1 if something is left for the next run.

    \b
    Examples:
      ralph workers run
      ralph workers run --once --json
    """
    with _worker_commands() as (crew, commands), stop_on_signals() as stop:
        with open_memory(conversations_folder(), waits=True) as ralph:
            prune_if_due(ralph.conversations)
        if once:
            statuses = crew.run_once(stop=stop)
            mine = [status for status in statuses if not status.note.startswith(ELSEWHERE)]
            left = any(status.total > status.completed for status in mine)
            code = INTERRUPTED if stop.is_set() else int(left)
            return _statuses(commands, statuses)._replace(code=code)
        printed: dict[str, WorkerStatus] = {}
        with crew:
            while not stop.is_set():
                _follow(crew, commands, printed)
                stop.wait(_LOOK_S)
    return 0  # a signal is the normal way to end it


def _follow(crew: Workers, commands: WorkerCommands, printed: dict[str, WorkerStatus]) -> None:
    """Start and stop workers by the current settings, and print what has changed."""
    try:
        crew.follow()
    except RalphError as error:
        note(str(error))
    for status in crew.statuses():
        shown = msgspec.structs.replace(status, current="", next_retry_s=None)
        # A growing total alone is no news.
        compared = msgspec.structs.replace(shown, total=0)
        if printed.get(status.name) == compared:
            continue
        printed[status.name] = compared
        if wants_json():
            render.print_json_line(msgspec.to_builtins(status))
        else:
            Page().show(commands.status_lines(shown))
            sys.stdout.flush()


@workers.command("status")
def show_status() -> Result:
    """Show the status of each worker, in whichever process it runs, and what was given up."""
    with _worker_commands() as (crew, commands):
        return _statuses(commands, crew.statuses(), crew.given_up())


def _statuses(
    commands: WorkerCommands, statuses: list[WorkerStatus], given_up: Sequence[FailedItem] = ()
) -> Result:
    lines = [line for status in statuses for line in commands.status_lines(status)]
    if given_up:
        lines += ["", f"Given up: {plural(len(given_up), 'item')}."]
        lines += [f"  {item}" for item in given_up[:_LISTED]]
        lines += [f"  and {more} more"] if (more := len(given_up) - _LISTED) > 0 else []
    failures = [render.picked(item, "worker", "item", "attempts", "error") for item in given_up]
    value = {"workers": statuses, "given_up": failures}
    return Result(value, lines or "All workers are off. To switch them on: `ralph summarizer on`")


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[conversation|exchange] [on|off]")
def summarizer(words: tuple[str, ...]) -> Result:
    """Show or switch the workers that summarize.

    `summarizer on` also switches on the embedding pipeline.

    \b
    Examples:
      ralph summarizer
      ralph summarizer exchange off
    """
    with _worker_commands() as (crew, commands):
        return _answer(crew, commands.summarizer(words))


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[on|off|rebuild [conversations|exchanges]]")
def embeddings(words: tuple[str, ...]) -> Result:
    """Show, switch or rebuild the embeddings.

    `rebuild` shows what it deletes and costs, and asks for a typed yes.

    \b
    Examples:
      ralph embeddings
      ralph embeddings rebuild conversations
    """
    with _worker_commands() as (crew, commands):
        return _answer(crew, commands.embeddings(words, render.typed_answer))


@click.command(cls=Command)
@click.argument("words", nargs=-1, metavar="[on|off|config|set KEY VALUE]")
def rag(words: tuple[str, ...]) -> Result:
    """Show or change what is recalled before an answer.

    \b
    Examples:
      ralph rag off
      ralph rag set rag_conversation_limit 5
    """
    with _worker_commands() as (_, commands):
        lines = commands.rag(words)
        return Result({"lines": lines, "settings": commands.rag_settings()}, lines)


def _answer(crew: Workers, lines: list[str]) -> Result:
    return Result({"lines": lines, "workers": msgspec.to_builtins(crew.statuses())}, lines)


@contextlib.contextmanager
def _worker_commands() -> Iterator[tuple[Workers, WorkerCommands]]:
    """Open the workers of this project, or of the conversations outside projects."""
    opened = partial(open_memory, conversations_folder(), waits=True)
    with warnings_noted():
        crew = Workers(opened)
        yield crew, WorkerCommands(crew, opened, prefix="ralph ", in_chat=False)
