"""What the output of a shell command tells: its errors, and whether it is known to have failed."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from ralph.capture.calls import passed
from ralph.capture.errors import JUDGED, Resolve, best_line, errors_in, says_little, typed
from ralph.capture.shell import is_masked, origin
from ralph.capture.stumbles import (
    SANDBOX,
    USAGE,
    StumbleKind,
    is_probe,
    is_scratch,
    misused,
    unmatched_listing,
)
from ralph.records.iteration import ErrorSeen

_EXIT = re.compile(r"\A\s*(?:Error: )?Exit code:? (?P<code>-?\d{1,9})\s*(?:\n|\Z)")
_GOING = re.compile(r"\A(?:cd \S+ (?:&&|;) )+")
# A job's log is fetched because the job failed.
JOB_LOG = re.compile(r"\bgh run view\b.{0,300}--log|/actions/jobs/\d+/logs")
# A file that is not there is not an error of the project.
_UNREADABLE = re.compile(
    r"(?:ls|rm|cat|head|tail|find|stat|grep|rg|wc|diff|sed|awk|du|file|readlink|Get-\w+)\b.{0,300}"
    r"(?:No such file or directory|Is a directory|Not a directory|[Pp]ermission denied"
    r"|cannot find the (?:file|path))"
)
# The runner of a task says that it failed, though its output went through a pipe.
_GAVE_UP = re.compile(
    r"task failed$|exited with (?:code|status) [1-9]|[Ff]ailed with exit code [1-9]|^FAIL\b"
    r"|ELIFECYCLE|^make(?:\[\d+\])?: \*\*\*|script failed|\b[1-9]\d* failed\b",
    re.M,
)
# An exception as the last line was caught by nobody.
_UNCAUGHT = re.compile(r"(?:[\w.]+(?:Error|Exception)|fatal|panic): \S")
_TESTS = re.compile(r"^\s*\d+ (?:pass|passing|passed)\b|^test result: |\b\d+ passed\b", re.M)
_ASKED_CODE = re.compile(r"\becho\b[^|&\n]{0,200}(?:\$\?|LASTEXITCODE|PIPESTATUS)")


class CommandOutput(msgspec.Struct, frozen=True):
    """What a command's output tells; without text where it is a file's."""

    errors: list[ErrorSeen] = []
    text: str | None = None
    # It is known that the command failed, or that it did not.
    sure: bool = True
    # Why nothing was kept, though it failed.
    probe: StumbleKind | None = None


def read_output(
    command: str,
    output: str,
    resolve: Resolve,
    *,
    failed: bool,
    is_known: Callable[[str], bool] = lambda text: False,
) -> CommandOutput:
    """Read what a command printed; `is_known` tells a text that was read before."""
    exit_line = _EXIT.match(output)
    code = int(exit_line["code"]) if exit_line else None
    text = output[exit_line.end() :] if exit_line else output
    if failed:
        return _failures(command, code, text, resolve)
    is_log = JOB_LOG.search(command) is not None
    if not is_log and origin(command) != "own":
        if message := misused(command, text):
            return CommandOutput([ErrorSeen(message, "runtime")], text)
        return CommandOutput()
    if is_known(text):
        return CommandOutput([], text)
    loose = is_log or (is_masked(command) and not passed(text))
    # Where tests ran, whatever else is printed was logged by one of them.
    ran_tests = not is_log and _TESTS.search(text[-1500:]) is not None
    errors = [
        error
        for error in errors_in(text, resolve, failed=loose)
        # What a command logs that went well is no error of it.
        if (error.error_type in JUDGED or (loose and not ran_tests) or _by_shell(error))
        and not _UNREADABLE.match(error.message)
        and not says_little(error.message)
        and not _is_unmatched(error, command)
    ]
    return CommandOutput(errors, text, is_log or not loose or _gave_up(command, text))


def _failures(command: str, code: int | None, text: str, resolve: Resolve) -> CommandOutput:
    """The errors of a command that failed; none when it only asked something."""
    if SANDBOX.search(text[-4000:]):
        return CommandOutput([], text, probe="sandbox")
    # What a reader prints when it fails stands at the end; the rest may be a file.
    own = text if origin(command) != "file" else "\n".join(text.strip().split("\n")[-12:])
    errors = errors_in(own, resolve, failed=True)
    if not errors and (message := best_line(own)):
        errors = [ErrorSeen(message, typed("runtime", message))]
    kept = [
        error
        for error in errors
        if not _UNREADABLE.match(error.message) and not is_scratch(command, error.message)
    ]
    if is_probe(command, text):
        kept = [error for error in kept if _is_usage(error, command)]
        return CommandOutput(kept, text, probe=None if kept else "probe")
    if kept:
        return CommandOutput(kept, text)
    # Nothing is left, or nothing says that anything went wrong.
    if errors or is_masked(command) or is_scratch(command, ""):
        return CommandOutput([], text, probe="probe")
    return CommandOutput([ErrorSeen(_failure(command, code, text))], text)


def _by_shell(error: ErrorSeen) -> bool:
    return error.message.startswith("command not found") or error.message.endswith(
        ("command not found", ": == not found")
    )


def _gave_up(command: str, text: str) -> bool:
    """Whether a command whose exit code is unknown says itself that it failed."""
    if _ASKED_CODE.search(command):
        return False
    last = text.rstrip()[-500:].rpartition("\n")[2]
    return _GAVE_UP.search(text[-3000:]) is not None or _UNCAUGHT.match(last) is not None


def _is_usage(error: ErrorSeen, command: str) -> bool:
    """Whether an error is about how a program was called."""
    return USAGE.search(error.message) is not None and not _is_unmatched(error, command)


def _is_unmatched(error: ErrorSeen, command: str) -> bool:
    """Whether names were to be listed, and there are none."""
    _, found, glob = error.message.partition("no matches found: ")
    return bool(found) and unmatched_listing(command, glob.strip())


def _failure(command: str, code: int | None, text: str) -> str:
    """The message of a command that failed without a known error; two such commands differ."""
    words = _GOING.sub("", " ".join(command.split()))
    words = words if len(words) <= 100 else words[:99] + "\u2026"
    last = text.strip().rpartition("\n")[2].strip()
    ended = "failed" if code is None else f"failed with exit code {code}"
    return f"`{words}` {ended}" + (f": {last}" if last else "")
