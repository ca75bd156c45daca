"""One run of the command line: the only place where errors become a line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from ralph.doors.cli.render import clean_streams, one_line
from ralph.doors.cli.tree import ralph
from ralph.errors import RalphError

FAILED = 1
INTERRUPTED = 130
BROKEN_PIPE = 141  # as the shell names the end by SIGPIPE
_COMPLETE = "_RALPH_COMPLETE"
# Commands that show what was remembered or written into the plan.
_RECALLS = frozenset(
    "conversations discipline failures feature files gate learning recent search show status"
    " task".split()
)


def run(argv: Sequence[str]) -> int:
    """Run one command and give its exit code."""
    _encode_anything()
    with clean_streams(fenced=_model_reads(argv)):
        return _exit_code(argv)


def _model_reads(argv: Sequence[str]) -> bool:
    """Whether an agent in its run asks memory or plan, and gets text; JSON is for programs."""
    if "--json" in argv or not _RECALLS.intersection(argv):
        return False
    from ralph.doors.cli.context import in_agents_run

    return in_agents_run()


def _exit_code(argv: Sequence[str]) -> int:
    try:
        code = _run(list(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        _close_quietly()
        return BROKEN_PIPE
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except RalphError as error:
        return _fail(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")
    except RecursionError:
        return _fail("the input is nested too deeply")
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        return _fail(f"the input is not UTF-8 text ({half!a})")
    except MemoryError:
        return _fail("not enough memory for this")
    except Exception as error:  # noqa: BLE001 - the last place before a traceback
        what = f"{type(error).__name__}: {error}"
        return _fail(f"internal error ({what}). Run again with RALPH_DEBUG=1 for a traceback")
    else:
        return code


def _run(argv: list[str]) -> int:
    if instruction := os.environ.get(_COMPLETE):
        from click.shell_completion import shell_complete

        return shell_complete(ralph, {}, "ralph", _COMPLETE, instruction)
    try:
        with ralph.make_context("ralph", argv) as context:
            code = ralph.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else 0


def _fail(message: str) -> int:
    if os.environ.get("RALPH_DEBUG", "0") not in ("", "0"):
        import traceback

        traceback.print_exc()
    try:
        sys.stdout.flush()
    except OSError:
        _close_quietly()
    sys.stderr.write(f"ralph: {one_line(message)}\n")
    return FAILED


def _encode_anything() -> None:
    """A terminal or code page that lacks a character shows it escaped instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _close_quietly() -> None:
    """Nobody reads stdout any more: drop the rest, and keep Python's own flush silent."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return  # not a real file, so there is no flush to come
