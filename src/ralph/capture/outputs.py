"""Read the output of shell commands, and errors in prose: the agent's, or pasted by a person.

Some failures say nothing about the project. A stumble is a call that the client itself rejected:
not approved, file not read yet, cancelled. A probe is a command that answers a question with its
exit code. Both are counted, not kept.
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
    with_test_name,
)
from ralph.capture.lines import sentences
from ralph.capture.rules import names, pattern, rows, words
from ralph.records.iteration import ErrorSeen, ErrorType

StumbleKind = Literal[
    "denied", "refused", "cancelled", "blocked", "edit", "read", "call", "sandbox", "probe"
]

# What clients answer instead of running a tool.
_STUMBLES = tuple(
    (msgspec.convert(kind, StumbleKind), re.compile(text, re.M))
    for kind, _, text in (row.partition(" ") for row in rows("stumbles"))
)
_STUMBLE_CHARS = 600
# Failures that a client's sandbox causes; outside it, the same command may succeed.
SANDBOX = pattern("sandbox")


def stumble(output: str) -> StumbleKind | None:
    """Return why the client itself rejected a call, or None if the tool ran and failed."""
    start = output[:_STUMBLE_CHARS]
    if pattern("ran").match(start):
        return None
    return next((kind for kind, pattern in _STUMBLES if pattern.search(start)), None)


# A pattern of the shell without quotes, which other shells would have passed on.
_UNQUOTED = "zsh: no matches found (quote * ? [ ] in arguments)"


def stumble_shape(output: str) -> str:
    """Return what stumbles of one kind have in common, if one can learn from it, or ""."""
    if shaped := pattern("shaped").search(output[:_STUMBLE_CHARS]):
        return shaped[0]
    return _UNQUOTED if pattern("no match").search(output[-2000:]) else ""


# Commands that ask something; their exit code is the answer.
_ASKING = shell.READERS | shell.LOOKERS | names("asking")
# Messages that a program was called wrongly, which is worth knowing.
USAGE = pattern("usage")
_NEUTRAL = frozenset("cd pushd popd export set source . echo printf mkdir".split())
_LISTING = frozenset("ls cat rm head tail stat find wc file du rg".split())
_RUNS_ANOTHER = frozenset("sudo env command time timeout xargs wsl".split())
_DURATION = re.compile(r"\d+(?:\.\d+)?[smhd]?")
# Words that ask a program for its own help.
_HELP = frozenset({"--help", "--version"})
# Words that make a request for a web page more than a question.
_SENDS = frozenset(
    {"-X", "--method", "--request", "-f", "-F", "--field", "--raw-field", "--input", "-d", "--data"}
)
_INLINE = frozenset({"-c", "-e", "--eval", "-"})


def is_probe(line: str, output: str) -> bool:
    """Whether a line that failed only asked a question, and the answer was no."""
    if pattern("no").search(output[-2000:]) or is_unmatched(line, output[-500:]):
        return True
    asking = [command.words for command in shell.deciding(line) if command.words[0] not in _NEUTRAL]
    return bool(asking) and all(_asks(_unset(words)) for words in asking)


def _asks(words: list[str]) -> bool:
    """Whether a simple command only asks; for ssh, sudo and the like, what they run decides."""
    name = posixpath.basename(words[0]) if words else ""
    rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if _HELP & set(words[1:]) or rest[:1] == ["help"]:
        return True
    if name == "ssh":
        return is_probe(next((word for word in rest if " " in word), ""), "")
    if name == "command" and "-v" in words:
        return True
    if name in _RUNS_ANOTHER:
        return _asks(rest[1:] if rest and _DURATION.fullmatch(rest[0]) else rest)
    if name == "curl":
        return "%{http_code}" in " ".join(words) or bool({"-I", "--head"} & set(words))
    if name == "gh" and rest[:1] == ["api"]:
        return not _SENDS & set(words)
    if name == "sed" and any(word.startswith("-i") for word in words):
        return False
    if name == "gofmt" or any(word.startswith(("--check", "--exit-code")) for word in words):
        return "-w" not in words
    # `gh pr checks`, `git -C a log`: the second word may be the verb.
    verbs = rest[1:] if words[1:2] in (["-C"], ["-R"]) else rest[: 2 if name == "gh" else 1]
    return name in _ASKING or any(f"{name}:{verb}" in _ASKING for verb in verbs[:2])


def _unset(words: list[str]) -> list[str]:
    """Return the words without variable assignments."""
    return [word for word in words if "=" not in word.split("/")[0]] or words


def is_unmatched(line: str, output: str) -> bool:
    """Whether the failure is a glob without matches in a command that lists files."""
    globs = pattern("no match").findall(output)
    holds = (x for x in shell.commands(line) if any(g in word for word in x.words for g in globs))
    return bool(globs) and any(posixpath.basename(one.words[0]) in _LISTING for one in holds)


def is_scratch(line: str, message: str, error_type: ErrorType = "unknown") -> bool:
    """Whether an error comes from a throwaway script and is only about that script."""
    is_missing = pattern("no module").search(message) is not None
    if is_missing and pattern("scratch").search(message):
        return True
    if pattern("about the query").search(message) and _asks_with_query(line):
        return True
    is_beyond = pattern("beyond the script").search(message) and not _is_scratch_file(message)
    if is_missing or "ImportError" in message or is_beyond:
        # This says something about the machine or the project.
        return False
    if any(_is_inline(command, line) for command in shell.deciding(line)):
        # A check that follows the script on its line has errors of its own.
        return error_type not in JUDGED or not shell.is_check(line)
    reads = any(one.joined == "|" and _is_inline(one, line) for one in shell.commands(line))
    return reads and _UNCAUGHT.match(message) is not None


def _is_scratch_file(message: str) -> bool:
    """Whether a script did not find a file that was made for the moment."""
    return "FileNotFoundError" in message and pattern("scratch").search(message) is not None


def _is_inline(command: shell.ShellCommand, line: str) -> bool:
    """Whether a command runs a script that is written on its line."""
    words = _unset(command.words)
    inline = any(word in _INLINE for word in words[1:3]) or ("<<" in line and len(words) < 3)
    return inline and bool(pattern("interpreters").fullmatch(posixpath.basename(words[0])))


def _asks_with_query(line: str) -> bool:
    """Whether a line gives a program a query to answer, perhaps on another machine."""
    called = pattern("queries").search(line)
    rest = line[called.end() :] if called else ""
    return called is not None and ("'" in rest or '"' in rest)


def is_slip(message: str) -> bool:
    """Whether an error is worth knowing only together with what helped.

    That is so if the call itself was wrong, or if nothing says why it failed.
    """
    if pattern("slips").match(message):
        return True
    failure = _FAILURE.match(message)
    if failure is None or not failure["last"]:
        return False
    last = failure["last"]
    if ASIDE.search(last):
        return True
    return not (pattern("tells").search(last) or pattern("says why").search(last))


# -- What a command printed.


_READ = 64_000
# Exit codes of a command that somebody stopped.
_STOPPED = frozenset({124, 130, 143, 144})
# A job's log is fetched because the job failed.
_JOB_LOG = re.compile(r"\bgh run view\b.{0,300}--log|/actions/jobs/\d+/logs")
# An exception on the last line was not caught.
_UNCAUGHT = re.compile(r"(?:[\w.]+(?:Error|Exception)|fatal|panic): \S")
# A message that `_failure` made.
_FAILURE = re.compile(r"`[^`]{0,400}` failed(?: with exit code -?\d+)?(?:: (?P<last>.+))?$", re.S)


def is_job_log(command: str) -> bool:
    """Whether a command fetches the log of a job that failed elsewhere."""
    return ("gh run" in command or "/actions/" in command) and bool(_JOB_LOG.search(command))


class CommandOutput(msgspec.Struct, frozen=True):
    """What a command's output says; `text` is None if the output is the content of a file.

    `here` is the folder that the command ended in.
    """

    errors: list[ErrorSeen] = []
    text: str | None = None
    here: str = ""
    # Whether it is certain that the command failed, or that it did not.
    sure: bool = True
    # Why nothing was kept although the command failed.
    probe: StumbleKind | None = None


def read_output(
    command: str,
    output: str,
    resolve: Resolve,
    *,
    failed: bool,
    is_known: Callable[[str], bool] = lambda text: False,
) -> CommandOutput:
    """Read what a command printed; `is_known` says whether a text was read before."""
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
    # Errors in the log of a command that succeeded are not its own, nor those that tests log.
    any_type = is_log or (loose and not pattern("tests").search(text[-1500:]))
    errors = [
        error
        for error in errors_in(text, resolve, failed=loose)
        if (any_type or error.error_type in JUDGED or error.message.startswith("command not found"))
        and not pattern("unreadable").match(error.message)
        and not ASIDE.search(error.message)
        and not is_unmatched(command, error.message)
        and not is_scratch(command, error.message, error.error_type)
    ]
    last = text.rstrip()[-500:].rpartition("\n")[2]
    return CommandOutput(errors, text, sure=is_log or not loose or bool(_UNCAUGHT.match(last)))


def _failures(command: str, code: int | None, text: str, resolve: Resolve) -> CommandOutput:
    """Return the errors of a command that failed; none if it only asked something."""
    if SANDBOX.search(text[-4000:]):
        return CommandOutput([], text, probe="sandbox")
    # A reader prints its own error at the end; the rest may be a file.
    own = text if shell.origin(command) != "file" else "\n".join(text.strip().split("\n")[-12:])
    errors = errors_in(own, resolve, failed=True) or _best(own, resolve)
    worth = [error for error in errors if not pattern("unreadable").match(error.message)]
    worth = [one for one in worth if not is_scratch(command, one.message, one.error_type)]
    worth = [with_test_name(error, own) for error in worth]
    if is_probe(command, text):
        # A wrong call is worth knowing, even if the command only asked.
        called = [error for error in worth if USAGE.search(error.message)]
        worth = [error for error in called if not is_unmatched(command, error.message)]
    elif text.rstrip().endswith("^C"):
        worth = []
    elif not (errors or code in _STOPPED or shell.is_masked(command) or is_scratch(command, "")):
        worth = [ErrorSeen(_failure(command, code, text))]
    return CommandOutput(worth, text, probe=None if worth else "probe")


def _best(output: str, resolve: Resolve) -> list[ErrorSeen]:
    """Return the line that best states the error, as an error; a formatter's ends with its file."""
    message = best_line(output)
    error_type = typed("runtime", message)
    path = message.rpartition(" ")[2] if error_type == "lint" else ""
    return [ErrorSeen(message, error_type, resolve(path) if path else None)] if message else []


def _failure(command: str, code: int | None, text: str) -> str:
    """Return a message for a failure without a known error; it names the command."""
    words = shell.GOING.sub("", " ".join(command.split()))
    words = words if len(words) <= 100 else words[:99] + "\u2026"
    last = text.strip().rpartition("\n")[2].strip()
    ended = "failed" if code is None else f"failed with exit code {code}"
    return f"`{words}` {ended}" + (f": {last}" if last else "")


# -- Errors in prose.


_NAMED = pattern("named")
_NAMING = ("rror", "ERROR: ", "Exception", "fatal: ", "panic: ", "exit status ", "exit code ")
_QUOTED = pattern("quoted")
_CODE = re.compile(r"\w\(|:=|=>|^(?:return|if|func|def|err|const|let|var)\b|\.\w+$|^[\w.-]+$")


def errors_said(text: str, resolve: Resolve) -> list[ErrorSeen]:
    """Return errors that the agent reports in its own words, but not hypothetical ones."""
    if not any(one in text for one in _NAMING):
        return []
    return list(_named(text[:_READ], resolve, words("supposed", re.I)))[:MOST_PER_OUTPUT]


def errors_pasted(text: str, resolve: Resolve) -> list[ErrorSeen]:
    """Return errors in a person's words: pasted output, a log line, or a quotation."""
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
    is_plan = pattern("section").search(plain) is not None
    if not found and not is_plan and len(pattern("log lines").findall(plain)) > 1:
        found = _best(logged, resolve)
    return folded(found)[:MOST_PER_OUTPUT]


def _named(text: str, resolve: Resolve, supposed: re.Pattern[str]) -> Iterator[ErrorSeen]:
    """Yield the errors that sentences name by their class, or quote as a message."""
    for sentence in sentences(text):
        if len(sentence) > LONGEST_LINE or sentence.lstrip().startswith(">"):
            continue
        named = _NAMED.search(sentence) if any(one in sentence for one in _NAMING) else None
        found = named or (_QUOTED.search(sentence) if supposed is pattern("doubtful") else None)
        around = sentence[: found.start()] + sentence[found.end() :] if found else sentence
        if found is None or supposed.search(around):
            continue
        message = found[0] if named else found["m"]
        # Text in backticks may be code; an error alone on its line was printed.
        is_met = words("met", re.I).search(around) or not around.strip(" `*-\t")
        if is_met if named else pattern("trouble").search(message) and not _CODE.search(message):
            message = message.strip().removeprefix("error: ").removeprefix("fatal: ").rstrip(" .*")
            place: Place = (None, None)
            if stated := pattern("stated").search(sentence):
                place = placed(stated["f"], stated["l"], resolve)
            yield ErrorSeen(message, typed("runtime", message), *place)
