"""The command line: the tree of commands, and the only place where errors become exit codes.

Listing the commands loads none of them; running one loads only that one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import click

from ralph import __version__
from ralph.current_run import current_run, restore_run
from ralph.doors.cli.render import clean_streams, one_line, render
from ralph.errors import RalphError, os_error_text, suggestion
from ralph.text.tokens import table

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

INTERRUPTED = 130
COMPLETE = "_RALPH_COMPLETE"
# Commands that show content of the memory or the plan.
_RECALLS = frozenset(
    "blame conversations discipline failures feature files gate how learning log recent search show"
    " status task".split()
)


# Each command in its group: where it is defined, and what it does.
GROUPS = {
    group: {
        name: (where.strip("-"), text) for name, where, text in (row.split(" ", 2) for row in rows)
    }
    for group, rows in table(__file__, "commands.txt").items()
}
COMMANDS = {name: row for rows in GROUPS.values() for name, row in rows.items()}
_HIDDEN = GROUPS.pop("Hidden")
_LISTED = frozenset(COMMANDS) - frozenset(_HIDDEN)
# What `ralph --help` lists, so that it fits on one screen. `ralph help --all` lists every command.
_EVERYDAY = frozenset(
    "init hooks status doctor config ui search recent how why inbox show remember forget"
    " backup plan feature task learning run".split()
)
# Words that people try, and the command they mean.
_MEANT = {
    **dict.fromkeys(("find", "recall"), "search"),
    **dict.fromkeys(("add", "note"), "remember"),
    **dict.fromkeys(("delete", "remove"), "forget"),
    **{"get": "show", "list": "recent", "ls": "recent", "notes": "recent", "history": "log"},
    **dict.fromkeys(("sessions", "documents", "import-sessions"), "conversations"),
    **{"install": "hooks", "settings": "config", "start": "init"},
}
_ALL = "--all"
# What `ralph` without a command runs, unless an agent calls it in its run.
_ALONE = "today"
# Words that people try, and the options they mean.
_OPTIONS = {"help": "--help", "version": "--version"}
# Removed commands; the error says what to use instead.
GONE = {"bench": "Run `scripts/bench NAME` from a clone of the repository."}
_PROJECT, _JSON, _NO_PAGER, _SERVER = (
    f"{__name__}.{name}" for name in ("project", "json", "no_pager", "server")
)
# Commands that work with a server, and commands about this machine or this directory's own files.
# All others fail if the memory is on a server.
_REMOTE = frozenset(
    "blame, doctor, failures, feature, files, forget, hooks, how, learning, log, open, recent"
    ", record, remember, run, search, show, status, task, today, why, journal deliver"
    ", conversations list, conversations show, conversations tag, conversations rename"
    ", conversations rate"
    ", knowledge capture, knowledge checkpoint, knowledge query, knowledge context"
    ", knowledge patterns, knowledge show, knowledge outcome".split(", ")
)
_HERE = frozenset(
    "completion config demo discipline focus init pause plan prompt resume trust undo".split()
)
# More letters than any command's first sentence has.
_WHOLE = 400
_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


# -- commands and groups


def project_given() -> str | None:
    """Return the value of `--project`, wherever it is on the command line."""
    return cast("str | None", click.get_current_context().meta.get(_PROJECT))


def keep_project(context: click.Context, folder: str | None) -> None:
    """Store the value of `--project`, for subcommands too."""
    if folder is not None:
        context.meta[_PROJECT] = folder


def server_given() -> str | None:
    """Return the value of `--server`, wherever it is on the command line."""
    return cast("str | None", click.get_current_context().meta.get(_SERVER))


def _keep_server(context: click.Context, _: click.Parameter, address: str | None) -> None:
    if address == "":  # for example from a shell variable that is not set
        raise click.BadParameter("the address is empty.")
    context.meta.update({_SERVER: address} if address else {})


def wants_json() -> bool:
    """Whether this command prints JSON."""
    return bool(click.get_current_context().meta.get(_JSON))


def _meta_flag(name: str, key: str, help: str) -> click.Option:
    """Define an option without a value for any group or command on the command line."""

    def keep(context: click.Context, _: click.Parameter, given: bool) -> None:
        context.meta.update({key: True} if given else {})

    return click.Option([name], is_flag=True, expose_value=False, callback=keep, help=help)


_JSON_OPTION = _meta_flag("--json", _JSON, "Print JSON.")
_PAGER_OPTION = _meta_flag("--no-pager", _NO_PAGER, "Print long output without a pager.")
_PROJECT_OPTION = click.Option(
    ["--project"],
    type=click.Path(file_okay=False),
    metavar="DIR",
    expose_value=False,
    callback=lambda context, _, value: keep_project(context, value),
    help="Project directory (default: nearest parent with a .ralph/).",
)


_SERVER_OPTION = click.Option(
    ["--server"],
    metavar="URL",
    expose_value=False,
    callback=_keep_server,
    help="Use https://HOST/projects/NAME with RALPH_TOKEN (default: RALPH_SERVER).",
)


class Command(click.Command):
    """A command with `--json`, `--project` and `--server`; `in_run` lists those a run may call."""

    def __init__(self, *args: Any, json: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"context_settings": _SETTINGS})
        if json:
            self.params += [_JSON_OPTION, _PAGER_OPTION]
        own = {option.name for option in self.params}
        shared = (_PROJECT_OPTION, _SERVER_OPTION)
        self.params += [option for option in shared if option.name not in own]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the command's own options; those of every command take one line."""
        _write_own_options(self, ctx, formatter)

    def invoke(self, ctx: click.Context) -> Any:
        """Check the call, run the command, print its result and return its exit code."""
        _, _, name = ctx.command_path.partition(" ")
        group = name.partition(" ")[0]
        given = _SERVER in ctx.meta
        if not _REMOTE & {group, name} and (given or group not in _HERE):
            _refuse_server(name, "Leave out --server, or run" if given else "")
        restore_run(os.environ)
        if current_run() is not None:
            from ralph.doors.cli.in_run import check

            check(ctx)
        return render(super().invoke(ctx), as_json=wants_json(), paged=_NO_PAGER not in ctx.meta)


def _write_own_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    shared = (_JSON_OPTION, _PAGER_OPTION, _PROJECT_OPTION, _SERVER_OPTION)
    options = [each for each in command.get_params(ctx) if isinstance(each, click.Option)]
    own = [option for option in options if option not in shared]
    rows = [row for option in own if (row := option.get_help_record(ctx)) is not None]
    with formatter.section("Options"):
        formatter.write_dl(rows)
    names = [option.opts[0] for option in shared if option in command.params]
    formatter.write_paragraph()
    formatter.write_text(f"Like every command: {', '.join(names)}. See `ralph help {_ALL}`.")


def _refuse_server(name: str, todo: str) -> None:
    from ralph.doors.cli.context import server_address

    if (address := server_address()) is not None:
        what = f"`ralph {name}` needs the project's own files, and its memory is on {address}"
        todo = todo or ("Unset RALPH_SERVER, or run" if os.environ.get("RALPH_SERVER") else "Run")
        raise RalphError(what, todo=f"{todo} it where the server runs.")


class Group(click.Group):
    """A group of such commands, which takes `--project` and `--server` as well."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"context_settings": _SETTINGS})
        self.params += [_PROJECT_OPTION, _PAGER_OPTION, _SERVER_OPTION]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the group's commands, and its own options above them."""
        _write_own_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their whole first sentence; click would cut it at 45 letters."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(limit=_WHOLE))
            for name, command in commands.items()
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command for the first word; for an unknown word, suggest one."""
        word = args[0]
        names = self.list_commands(ctx)
        if word in names or word.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        at_top = ctx.parent is None
        hint = suggestion(_MEANT.get(word, word) if at_top else word, names, "{!r}")
        hint = hint or ("" if at_top else f"`{ctx.command_path}` has: {', '.join(names)}.")
        raise click.UsageError(f"There is no command {word!r}. {hint}".rstrip(), ctx)


class Tree(Group):
    """All commands by name; each is imported when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        if not name:
            return Command(cmd_name) if ctx.resilient_parsing else None
        command: click.Command = getattr(import_module(f"ralph.doors.cli.commands.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command for the first word; for a removed one, say what to use instead."""
        if args[0] in GONE and not ctx.resilient_parsing:
            what = f"`ralph {args[0]}` is no longer part of the package"
            raise RalphError(what, todo=GONE[args[0]])
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of every day: one screen, and how to see the rest."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self._write_groups(formatter, _EVERYDAY)
        formatter.write_paragraph()
        formatter.write_text("`ralph help COMMAND` explains a command and its options.")
        formatter.write_text(f"`ralph help {_ALL}` lists all {len(_LISTED)} commands.")

    def full_help(self, ctx: click.Context) -> str:
        """Return the help with every option and every command."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)
        self._write_groups(formatter, _LISTED)
        return formatter.getvalue().rstrip("\n")

    def _write_groups(self, formatter: click.HelpFormatter, listed: frozenset[str]) -> None:
        """Write the listed commands in the groups of the table, without importing any."""
        width = max(map(len, listed))
        for title, rows in GROUPS.items():
            shown = [
                (name.ljust(width), text) for name, (_, text) in rows.items() if name in listed
            ]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands from the table, and options from click."""
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=text)
            for name, (_, text) in COMMANDS.items()
            if name.startswith(incomplete) and name not in _HIDDEN
        ] + click.Command.shell_complete(self, ctx, incomplete)


@click.command(cls=Tree)
@click.version_option(
    __version__, "-V", "--version", message="ralph %(version)s", help="Show the version."
)
def ralph() -> None:
    """Long-term memory for coding agents."""


# -- one run


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit code; only exceptions that end the process get out."""
    for stream in (sys.stdout, sys.stderr):
        # If a terminal or code page lacks a character, print it escaped instead of failing.
        if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
            reconfigure(errors="backslashreplace")
    with clean_streams(fenced=_model_reads(argv)):
        try:
            code = _run(list(argv))
            sys.stdout.flush()
        except BrokenPipeError:
            _close_quietly()
            return 141  # the shell's exit code for SIGPIPE
        except (KeyboardInterrupt, click.Abort):
            return INTERRUPTED
        except Exception as error:  # noqa: BLE001 - otherwise the user would get a traceback
            return _fail(error)
        return code


def _model_reads(argv: Sequence[str]) -> bool:
    """Whether a model will read text from memory or plan: in a run, and not as JSON."""
    return "--json" not in argv and bool(_RECALLS & {*argv}) and current_run() is not None


def _run(argv: list[str]) -> int:
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(ralph, {}, "ralph", COMPLETE, instruction)
    if not argv:
        restore_run(os.environ)
        argv = ["--help"] if current_run() else [_ALONE]
    if argv[:1] == ["help"] and argv[1:] == [_ALL]:
        click.echo(ralph.full_help(ralph.make_context("ralph", [], resilient_parsing=True)))
        return 0
    if argv and argv[0] in _OPTIONS:  # `ralph help search` is `ralph search --help`
        argv = [*argv[1:], _OPTIONS[argv[0]]]
    try:
        with ralph.make_context("ralph", argv) as context:
            code = ralph.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else 0


def _fail(error: Exception) -> int:
    if os.environ.get("RALPH_DEBUG", "0") not in ("", "0"):
        import traceback

        traceback.print_exc()
    try:
        sys.stdout.flush()
    except OSError:
        _close_quietly()
    sys.stderr.write(f"ralph: {one_line(_message(error))}\n")
    return 1


def _message(error: Exception) -> str:
    match error:
        case RalphError():
            return str(error)
        case OSError():
            return os_error_text(error)
        case RecursionError():
            return "the input is nested too deeply"
        case UnicodeEncodeError():
            return f"the input is not UTF-8 text ({error.object[error.start : error.end]!a})"
        case MemoryError():
            return "not enough memory for this"
    what = f"{type(error).__name__}: {error}"
    return f"internal error ({what}). Run again with RALPH_DEBUG=1 for a traceback"


def _close_quietly() -> None:
    """Drop the rest of stdout, which nobody reads, so that Python's last flush does not fail."""
    with contextlib.suppress(OSError, ValueError):  # not a real file, so there is no last flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
