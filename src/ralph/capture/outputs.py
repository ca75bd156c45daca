"""What a shell command's output tells, and errors in words: the agent's, or pasted by a person.

Some failures say nothing about the project. A stumble is a call that the client itself turned down:
not approved, not read yet, cancelled. A probe is a command that answers a question with its exit
code. Both are counted, not kept.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from ralph.capture import shell
from ralph.capture.errors import (
    ASIDE,
    JUDGED,
    LONGEST_LINE,
    MOST_PER_OUTPUT,
    Place,
    Resolve,
    best_line,
    errors_in,
    folded,
    placed,
    plain_output,
    typed,
)
from ralph.capture.lines import sentences
from ralph.capture.rules import names, pattern, rows, words
from ralph.records.iteration import ErrorSeen

StumbleKind = Literal[
    "denied", "refused", "cancelled", "blocked", "edit", "read", "call", "sandbox", "probe"
]

# What the clients say instead of running a tool.
_STUMBLES = tuple(
    (msgspec.convert(kind, StumbleKind), re.compile(text, re.M))
    for kind, _, text in (row.partition(" ") for row in rows("stumbles"))
)
_STUMBLE_CHARS = 600
# What a client's sandbox keeps from a command, which the same command may do outside of it.
SANDBOX = pattern("sandbox")


def stumble(output: str) -> StumbleKind | None:
    """Why the client itself turned a call down; None when the tool ran and failed."""
    start = output[:_STUMBLE_CHARS]
    if pattern("ran").match(start):
        return None
    return next((kind for kind, pattern in _STUMBLES if pattern.search(start)), None)


# Ask something; their exit code is the answer.
_ASKING = shell.READERS | shell.LOOKERS | names("asking")
# Says that a program was called wrongly, which is worth knowing.
USAGE = pattern("usage")
_NEUTRAL = frozenset("cd pushd popd export set source . echo printf mkdir".split())
_LISTING = frozenset("ls cat rm head tail stat find wc file du rg".split())
_RUNS_ANOTHER = frozenset("sudo env command time timeout xargs wsl".split())
_INLINE = frozenset({"-c", "-e", "--eval", "-"})


def is_probe(line: str, output: str) -> bool:
    """Whether a line that failed only asked a question, and was answered with no."""
    if pattern("no").search(output[-2000:]) or is_unmatched(line, output[-500:]):
        return True
    asking = [command.words for command in shell.deciding(line) if command.words[0] not in _NEUTRAL]
    return bool(asking) and all(_asks(_unset(words)) for words in asking)


def _asks(words: list[str]) -> bool:
    """Whether a simple command asks; what runs over ssh, or behind another program, decides."""
    name = posixpath.basename(words[0]) if words else ""
    rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if name == "ssh":
        return is_probe(next((word for word in rest if " " in word), ""), "")
    if name in _RUNS_ANOTHER:
        return _asks(rest)
    if name == "sed" and any(word.startswith("-i") for word in words):
        return False
    if name == "gofmt" or any(word.startswith(("--check", "--exit-code")) for word in words):
        return "-w" not in words
    # `gh pr checks`, `git -C a log`: the second word may be the verb.
    verbs = rest[1:] if words[1:2] in (["-C"], ["-R"]) else rest[: 2 if name == "gh" else 1]
    return name in _ASKING or any(f"{name}:{verb}" in _ASKING for verb in verbs[:2])


def _unset(words: list[str]) -> list[str]:
    """The words without the variables that are set for them."""
    return [word for word in words if "=" not in word.split("/")[0]] or words


def is_unmatched(line: str, output: str) -> bool:
    """Whether a pattern of names that matched nothing was only to be listed."""
    globs = pattern("no match").findall(output)
    holds = (x for x in shell.commands(line) if any(g in word for word in x.words for g in globs))
    return bool(globs) and any(posixpath.basename(one.words[0]) in _LISTING for one in holds)


def is_scratch(line: str, message: str) -> bool:
    """Whether an error is that of a script written for the moment, about nothing but itself."""
    is_missing = pattern("no module").search(message) is not None
    if is_missing and pattern("scratch").search(message):
        return True
    for command in shell.deciding(line):
        words = _unset(command.words)
        inline = any(word in _INLINE for word in words[1:3]) or ("<<" in line and len(words) < 3)
        if inline and pattern("interpreters").fullmatch(posixpath.basename(words[0])):
            # A module that is missing tells something about the project still.
            return not is_missing and "ImportError" not in message
    return False


# -- What a command printed.


_READ = 64_000
# Somebody stopped it.
_STOPPED = frozenset({130, 143})
# A job's log is fetched because the job failed.
_JOB_LOG = re.compile(r"\bgh run view\b.{0,300}--log|/actions/jobs/\d+/logs")
# An exception as the last line was caught by nobody.
_UNCAUGHT = re.compile(r"(?:[\w.]+(?:Error|Exception)|fatal|panic): \S")


def is_job_log(command: str) -> bool:
    """Whether a command fetches the log of a job that failed elsewhere."""
    return ("gh run" in command or "/actions/" in command) and bool(_JOB_LOG.search(command))


class CommandOutput(msgspec.Struct, frozen=True):
    """What a command's output tells; without text where it is a file's.

    `here` is the folder that it ended in.
    """

    errors: list[ErrorSeen] = []
    text: str | None = None
    here: str = ""
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
    exit_line = pattern("exit").match(output)
    code = int(exit_line["code"]) if exit_line else None
    text = output[exit_line.end() :] if exit_line else output
    if failed:
        return _failures(command, code, text, resolve)
    is_log = is_job_log(command)
    if not is_log and shell.origin(command) != "own":
        wrong = pattern("misused").search(text[:4000]) if " option" in text[:4000] else None
        if wrong and wrong["p"] in command:
            return CommandOutput([ErrorSeen(wrong[0], "runtime")], text)
        return CommandOutput()
    if is_known(text):
        return CommandOutput([], text)
    loose = is_log or (shell.is_masked(command) and not shell.passed(text))
    # What a command logs that went well is no error of it; nor what is logged where tests ran.
    any_type = is_log or (loose and not pattern("tests").search(text[-1500:]))
    errors = [
        error
        for error in errors_in(text, resolve, failed=loose)
        if (any_type or error.error_type in JUDGED or error.message.startswith("command not found"))
        and not pattern("unreadable").match(error.message)
        and not ASIDE.search(error.message)
        and not is_unmatched(command, error.message)
    ]
    last = text.rstrip()[-500:].rpartition("\n")[2]
    return CommandOutput(errors, text, sure=is_log or not loose or bool(_UNCAUGHT.match(last)))


def _failures(command: str, code: int | None, text: str, resolve: Resolve) -> CommandOutput:
    """The errors of a command that failed; none when it only asked something."""
    if SANDBOX.search(text[-4000:]):
        return CommandOutput([], text, probe="sandbox")
    # What a reader prints when it fails stands at the end; the rest may be a file.
    own = text if shell.origin(command) != "file" else "\n".join(text.strip().split("\n")[-12:])
    errors = errors_in(own, resolve, failed=True) or _best(own, resolve)
    worth = [error for error in errors if not pattern("unreadable").match(error.message)]
    worth = [error for error in worth if not is_scratch(command, error.message)]
    if is_probe(command, text):
        # How a program was called wrongly is worth knowing, though it only asked.
        called = [error for error in worth if USAGE.search(error.message)]
        worth = [error for error in called if not is_unmatched(command, error.message)]
    elif not (errors or code in _STOPPED or shell.is_masked(command) or is_scratch(command, "")):
        worth = [ErrorSeen(_failure(command, code, text))]
    return CommandOutput(worth, text, probe=None if worth else "probe")


def _best(output: str, resolve: Resolve) -> list[ErrorSeen]:
    """The line that tells the error best, as one; a formatter's ends with its file."""
    message = best_line(output)
    error_type = typed("runtime", message)
    path = message.rpartition(" ")[2] if error_type == "lint" else ""
    return [ErrorSeen(message, error_type, resolve(path) if path else None)] if message else []


def _failure(command: str, code: int | None, text: str) -> str:
    """The message of a command that failed without a known error; two such commands differ."""
    words = shell.GOING.sub("", " ".join(command.split()))
    words = words if len(words) <= 100 else words[:99] + "\u2026"
    last = text.strip().rpartition("\n")[2].strip()
    ended = "failed" if code is None else f"failed with exit code {code}"
    return f"`{words}` {ended}" + (f": {last}" if last else "")


# -- Errors in words.


_NAMED = pattern("named")
_NAMING = ("rror", "ERROR: ", "Exception", "fatal: ", "panic: ")
_QUOTED = pattern("quoted")
_CODE = re.compile(r"\w\(|:=|=>|^(?:return|if|func|def|err|const|let|var)\b|\.\w+$|^[\w.-]+$")


def errors_said(text: str, resolve: Resolve) -> list[ErrorSeen]:
    """Errors the agent reports in its own words, with class and message; never supposed ones."""
    if not any(one in text for one in _NAMING):
        return []
    return list(_named(text[:_READ], resolve, words("supposed", re.I)))[:MOST_PER_OUTPUT]


def errors_pasted(text: str, resolve: Resolve) -> list[ErrorSeen]:
    """Errors in a person's words: a pasted output or log line, or one quoted in the text."""
    text = text[:_READ]
    if not pattern("trouble").search(text) and not pattern("logged").search(text):
        return []
    plain = plain_output(text)
    found = errors_in(plain, resolve, failed=True)
    found = [error for error in found if "Process completed" not in error.message]
    for match in pattern("logged").finditer(plain):
        message = match["m"].partition(". ")[0].strip()
        found.append(ErrorSeen(message, "runtime", *placed(match["f"], match["l"], resolve)))
    printed = "\n".join(error.message for error in found)
    named = _named(plain, resolve, pattern("doubtful"))
    found += (one for one in named if one.message.removeprefix("Error: ") not in printed)
    logged = "\n".join(line for line in plain.split("\n") if not pattern("by hand").match(line))
    if not found and len(pattern("log lines").findall(plain)) > 1:
        found = _best(logged, resolve)
    return folded(found)[:MOST_PER_OUTPUT]


def _named(text: str, resolve: Resolve, supposed: re.Pattern[str]) -> Iterator[ErrorSeen]:
    """The errors that sentences name by their class, or quote as a message."""
    for sentence in sentences(text):
        if len(sentence) > LONGEST_LINE or sentence.lstrip().startswith(">"):
            continue
        named = _NAMED.search(sentence) if any(one in sentence for one in _NAMING) else None
        found = named or (_QUOTED.search(sentence) if supposed is pattern("doubtful") else None)
        around = sentence[: found.start()] + sentence[found.end() :] if found else sentence
        if found is None or supposed.search(around):
            continue
        message = found[0] if named else found["m"]
        # What is in backticks may be code; what is named alone on its line was printed.
        is_met = words("met", re.I).search(around) or not around.strip(" `*-\t")
        if is_met if named else pattern("trouble").search(message) and not _CODE.search(message):
            message = message.strip().removeprefix("error: ").removeprefix("fatal: ").rstrip(" .*")
            place: Place = (None, None)
            if stated := pattern("stated").search(sentence):
                place = placed(stated["f"], stated["l"], resolve)
            yield ErrorSeen(message, typed("runtime", message), *place)
