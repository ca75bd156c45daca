"""Shell lines: what they do to files, whose words they print, and whether two are the same call.

Only plain forms are understood (redirections, `tee`, `sed -i`, `cp`, `rm`, `git rm`, `mv`, `cd`,
joined by `&&`, `;` or lines). Commands after `||`, in a loop or in a condition may not have run,
and do not count.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import islice, pairwise
from typing import Literal, NamedTuple

import msgspec

from ralph.capture.lines import clip
from ralph.capture.rules import names, pattern, words
from ralph.records.iteration import ErrorType, FileAction
from ralph.text.redact import redact

_LONGEST = 20_000
# Words that end, divide and begin the branches of an `if` or a loop, and what does no work there.
_CLOSING = {"fi", "done", "esac"}
_BRANCHING = {"else", "elif"}
_OPENING = {"then", "else", "do"}
_WITHOUT_WORK = {
    "echo",
    "printf",
    "exit",
    "break",
    "continue",
    "return",
    ":",
    "true",
    "false",
    *_CLOSING,
}
_CONTROL = {"if", "for", "while", "until", "case", "function", "{", "("}
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_BASH_DRIVE = re.compile(r"/([A-Za-z])(?:/|\Z)")
_QUOTED = re.compile(r"'(?P<plain>[^']*)'|\"(?P<soft>(?:[^\"\\]|\\.)*)\"|\\(?P<escaped>.)", re.S)
_NOT_PLAIN = re.compile(r"[*?$`{}\[\]<>|;&]")
_TO_FILE = {">", ">>", ">|", "1>", "1>>", "&>", "&>>"}
_JOINS = {"&&", ";", "\n", ";;"}
_PIPES = {"|", "|&"}

# Commands that show files, or git's or Ralph's history, so errors in their output are not new.
READERS = names("readers")
_GIT_READERS = frozenset("log show diff blame grep reflog shortlog cat-file stash ls-files".split())
# Commands that look at the machine and print little.
LOOKERS = names("lookers")
_SILENT = LOOKERS | frozenset(
    "cd pushd popd export set unset source . mkdir touch echo printf chmod rm mv cp clear".split()
)
# What leaves something running after a line returns. Quoted text is skipped, but not a script
# after `-c`.
_LEAVES = re.compile(
    rf"(?<!c )(?:{_QUOTED.pattern})|(?P<leaves>&(?<![&<>|]&)(?![&>])|\b(?:nohup|setsid|disown)\b)",
    re.S,
)


class ShellCommand(msgspec.Struct):
    """One simple command in a line, and what joins it to the one before."""

    words: list[str]
    joined: str = "\n"
    piped: bool = False
    # The file its output goes to, and whether it is appended.
    silenced: str = ""
    appends: bool = False


Origin = Literal["own", "file", "mixed"]


# The same line is parsed for its effects and for the origin of its output.
@lru_cache(maxsize=64)
def commands(line: str) -> tuple[ShellCommand, ...]:
    """Return the simple commands of a line, in order; none if it is not plain shell."""
    found = list[ShellCommand]()
    current = ShellCommand([])
    after_redirect: str | None = None
    for token in pattern("token").finditer(_bare(line)):
        kind = token.lastgroup
        if kind == "bad":
            return ()
        if kind == "word":
            word = _unquoted(token["word"])
            if after_redirect is None:
                current.words.append(word)
            elif after_redirect in _TO_FILE:
                current.silenced, current.appends = word, after_redirect.endswith(">>")
            after_redirect = None
        elif kind == "redirect":
            after_redirect = token["redirect"]
        elif kind == "join":
            join = token["join"].strip("\n\r ") or "\n"
            if current.words:
                current.piped = current.piped or join in _PIPES
                found.append(current)
            current = ShellCommand([], joined=join, piped=join in _PIPES)
            after_redirect = None
    if current.words:
        found.append(current)
    return tuple(found)


def _bare(line: str) -> str:
    """Return what the shell runs: a script out of its `sh -c`, without here-documents."""
    line = line.strip()[:_LONGEST]
    if called := pattern("subshell call").match(line):
        try:
            line = shlex.split(called["inner"])[0]
        except (ValueError, IndexError):
            return ""
    return pattern("heredoc").sub(" ", line) if "<<" in line else line


def leaves_running(line: str) -> bool:
    """Whether a line leaves something running after it returns."""
    return any(found["leaves"] for found in _LEAVES.finditer(_bare(line)))


def _unquoted(word: str) -> str:
    return _QUOTED.sub(lambda q: q["plain"] or q["soft"] or q["escaped"] or "", word)


def joined(folder: str, path: str) -> str:
    """Return a path from a folder. On Windows, Git Bash calls `D:\\shop` `/d/shop`."""
    if _DRIVE.match(path):
        return path.replace("\\", "/")
    if _DRIVE.match(folder) and (drive := _BASH_DRIVE.match(path)):
        return f"{drive[1].lower()}:/{path[drive.end() :]}"
    return posixpath.join(folder, path)


def file_effects(line: str, base: str) -> tuple[list[tuple[str, FileAction]], str]:
    """Return the files a successful command wrote, removed or moved, and the folder it ended in."""
    effects: list[tuple[str, FileAction]] = []
    here = base
    for command in commands(line):
        name = command.words[0]
        if name in _CONTROL or command.joined not in _JOINS:
            # From here on it is not certain what ran, except for a `tee` in the pipe.
            if name == "tee" and command.joined in _PIPES:
                effects += [(joined(here, path), how) for path, how in _written(command)]
            break
        rest = command.words[1:]
        effects += [(joined(here, path), action) for path, action in _written(command)]
        if command.piped:
            continue
        if name == "git" and rest and rest[0] in {"rm", "mv"}:
            name = rest[0]
            rest = rest[1:]
            if "--cached" in rest or "-n" in rest or "--dry-run" in rest:
                continue
        if name == "cd":
            here = posixpath.normpath(joined(here, rest[0])) if rest else here
        elif name in {"rm", "unlink", "mv"}:
            paths = _paths(rest)
            if name == "mv":
                effects += _moved(paths, here)
            else:
                effects += [(joined(here, path), "deleted") for path in paths]
    return effects, here


def _written(command: ShellCommand) -> list[tuple[str, FileAction]]:
    """Return the files that a command writes by redirection, `tee`, `sed -i` or `cp`."""
    name = command.words[0]
    rest = command.words[1:]
    plain = [word for word in rest if word and word[0] != "-" and not _NOT_PLAIN.search(word)]
    found: list[tuple[str, FileAction]] = []
    if command.silenced and not _NOT_PLAIN.search(command.silenced):
        found.append((command.silenced, "modified" if command.appends else "created"))
    if name == "tee" and plain:
        found += [(path, "modified" if "-a" in rest else "created") for path in plain]
    elif name == "sed" and any(word.startswith("-i") for word in rest) and plain:
        found.append((plain[-1], "modified"))
    elif name == "cp" and len(plain) == 2 and "." in posixpath.basename(plain[1]):
        found.append((plain[1], "created"))
    return [(path, action) for path, action in found if not path.startswith(("/dev/", "&"))]


def written_by(line: str) -> list[str]:
    """Return the files that a script on the command line writes, as far as it names them."""
    if not re.search(r" -[ce] ", line[:200]) or not pattern("script writes").search(line):
        return []
    return list(dict.fromkeys(pattern("script file").findall(line)))[:2]


def _paths(words: list[str]) -> list[str]:
    if any(_NOT_PLAIN.search(word) for word in words):
        return []
    if "--" in words:
        return words[words.index("--") + 1 :]
    return [word for word in words if word and not word.startswith("-")]


def _moved(paths: list[str], here: str) -> list[tuple[str, FileAction]]:
    if len(paths) < 2:
        return []
    *sources, target = paths
    effects: list[tuple[str, FileAction]] = []
    for source in sources:
        name = posixpath.basename(source.rstrip("/"))
        # A file with an extension moved to a name without one: the target is a folder.
        into = len(sources) > 1 or target.endswith("/") or target in {".", ".."}
        into = into or ("." in name and "." not in posixpath.basename(target))
        there = posixpath.join(target, name) if into else target
        effects.append((joined(here, source), "deleted"))
        effects.append((joined(here, there), "created"))
    return effects


@lru_cache(maxsize=64)
def origin(line: str) -> Origin:
    """Return whether the output is the commands' own words, the content of files, or both."""
    kinds: set[str] = set()
    written: set[str] = set()
    previous_piped = False
    for command in commands(line):
        into_pipe = command.joined in _PIPES and previous_piped
        previous_piped = command.piped
        # Only the first command of a pipe says where the text comes from.
        if command.silenced:
            written.add(command.silenced)
        elif not into_pipe:
            # A file that the line itself has just written holds a command's own words.
            kinds.add("own" if written & set(command.words) else kind_of(command.words))
    kinds.discard("silent")
    if kinds == {"file"}:
        return "file"
    return "mixed" if "file" in kinds else "own"


def kind_of(words: list[str]) -> str:
    """Return whose words a simple command prints: its `own`, a `file`'s, or none (`silent`)."""
    plain = [word for word in words if "=" not in word.split("/")[0]] or words
    name = posixpath.basename(plain[0])
    if name == "git":
        verbs = [word for word in plain[1:] if not word.startswith("-")]
        if len(plain) > 2 and plain[1] == "-C":
            verbs = verbs[1:]
        return "file" if verbs and verbs[0] in _GIT_READERS else "own"
    if name == "sed" and any(word.startswith("-i") for word in plain):
        return "own"
    if name in READERS:
        return "file"
    return "silent" if name in _SILENT else "own"


def _works(command: ShellCommand) -> bool:
    """Whether a command is run for its own sake, not to show the output of another."""
    return command.joined not in _PIPES and kind_of(command.words) == "own"


def deciding(line: str) -> list[ShellCommand]:
    """Return the commands that may set the line's exit code: the last, and those it waited for."""
    found = commands(line)
    deciders: list[ShellCommand] = []
    at = len(found) - 1
    while at >= 0:
        deciders.append(found[at])
        while at > 0 and found[at].joined in _PIPES:
            at -= 1
        if found[at].joined != "&&":
            break
        at -= 1
    if deciders and deciders[0].words[0] in _CLOSING:
        return _last_of_branches(found) or deciders
    return deciders


def _last_of_branches(found: Sequence[ShellCommand]) -> list[ShellCommand]:
    """Return the commands that decide how an `if` or a loop ends: the last one of each branch."""
    last: list[ShellCommand] = []
    for before, after in pairwise(found):
        if after.words[0] not in _CLOSING and after.words[0] not in _BRANCHING:
            continue
        words = before.words[1:] if before.words[0] in _OPENING else before.words
        if words and words[0] not in _WITHOUT_WORK:
            last.append(msgspec.structs.replace(before, words=words))
    return last


@lru_cache(maxsize=64)
def is_masked(line: str) -> bool:
    """Whether the line's exit code comes from a command other than the one that does the work."""
    found = commands(line)
    if not found or "pipefail" in line:
        return False
    work = [at for at, one in enumerate(found) if _works(one)]
    if not work or found[work[-1]].piped:
        return True
    return any(one.joined != "&&" for one in found[work[-1] + 1 :])


# -- Comparing calls: whether one was made before, how it went, what was changed in it.
#
# Careful on purpose: a call that is not clearly the same, or not clearly a success, does not count.


CallOutcome = Literal["well", "badly", "unclear"]

_SHORT = 60
# The longest command that is shown whole to tell how it differs from another.
_LONGEST_SHOWN = 150
_LONG_WORD = 30
_MOST_WORDS = 200
_READ = 2000
GOING = re.compile(r"\A(?:cd (?:\"[^\"]*\"|[^\s;&]+)\s*(?:&&|;|\n)\s*)+")

# Programs that run the command that follows them.
_WRAPPERS = names("wrappers")
_RUNNERS = names("runners")
_SCRIPT = "<script>"
_SCRIPTED = frozenset({"-c", "-e", "--eval", "-"})
# Programs that check everything unless they get a target, so a wider run proves a narrower one.
_CHECKS = words("checks")
_OF_TYPE = {"test": pattern("runs tests"), "lint": pattern("runs linters")}
# Programs that run a script, and a script whose name says that it checks something.
_RUNS_SCRIPTS = frozenset("python node bun deno ruby perl php bash sh zsh pwsh".split())
_CHECK_SCRIPT = re.compile(r"(?:^|[/_.-])(?:check|test|verify|validate|spec)s?(?:[/_.-]\S*)?\.\w+$")
# These always work on the whole project.
ON_ALL = frozenset({("git", "commit"), ("git", "push"), ("git", "pull"), ("git", "rebase")})
# The final verdict of a test runner counts, whatever was logged before it.
_FAILURES = re.compile(r"\b[1-9]\d* (?:fail|failed|failures?|failing|errors?|issues?)\b|\bFAIL")
_FAILED = re.compile(
    rf"(?i:{_FAILURES.pattern}|\b[1-9]\d* problems?\b|\bnot ok\b|\berror(?:\[|:| TS))"
    r"|\bTraceback\b|✗|✖|\u00d7"
)
_FILTERED = re.compile(r"\| *(?:head|tail|tee)\b(?!.*\| *(?!head|tail|tee)\w)")
# Test runners always print something.
_TALKS = re.compile(r"test|spec|jest|nox|tox")
_NEEDS_NO_QUOTES = re.compile(r"[\w@%+=:,./~$-]+")
_WORD = re.compile(r"[\w./\\=:@*'\"-]+")
_SHOWN = pattern("shown")


class ShellCall(NamedTuple):
    """One program that a line runs for its own sake, with its targets and options."""

    program: tuple[str, ...]
    targets: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()

    @property
    def checks(self) -> bool:
        """Whether it runs tests, a build or a linter."""
        return self.program[0] != "git" and _CHECKS.search(" ".join(self.program)) is not None


class ToolAttempt(msgspec.Struct, frozen=True):
    """A shell line, parsed as far as is needed to tell whether it is run again."""

    text: str
    line: str = ""
    calls: tuple[ShellCall, ...] = ()
    folder: str = ""
    # Whether its exit code is another command's.
    masked: bool = False

    @property
    def hint(self) -> str:
        """A word that every repetition of this call contains."""
        last = self.calls[-1].program[-1] if self.calls else ""
        return last if last and last in self.text else self.text.partition(" ")[0]


@lru_cache(maxsize=64)
def shell_call(line: str, folder: str = "") -> ToolAttempt:
    """Return a shell line as a call in this folder."""
    work = filter(_works, commands(line))
    calls = tuple(call for one in islice(work, 20) if (call := _shell_call(one)).program)
    return ToolAttempt(GOING.sub("", " ".join(line.split())), line, calls, folder, is_masked(line))


def _shell_call(command: ShellCommand) -> ShellCall:
    program, rest = _program(command)
    if program[:2] in ON_ALL:
        return ShellCall(program[:2])
    is_script = not rest or bool(_SCRIPTED & set(rest[:2]))
    if is_script and len(program) == 1 and pattern("interpreters").fullmatch(program[0]):
        # Two scripts on the command line are two programs.
        return ShellCall((*program, _SCRIPT))
    targets = set[str]()
    options = set[str]()
    skip = False
    for word in rest:
        if skip:
            skip = False
        elif word.startswith("-"):
            options.add(word)
            narrowing = pattern("narrowing").fullmatch(word)
            skip = bool(narrowing and narrowing["valued"] and "=" not in word)
        else:
            targets.add(_plain(word))
    return ShellCall(program, frozenset(targets), frozenset(options))


def _program(command: ShellCommand) -> tuple[tuple[str, ...], list[str]]:
    """Return the program, with its verb if it has many, and the words after it."""
    words = list(command.words)
    while words:
        name = posixpath.basename(words[0])
        verb = words[1:2]
        if pattern("env").match(words[0]) or name in _WRAPPERS:
            words = words[1:]
        elif (
            name == "timeout"
            or f"{name}:{''.join(verb)}" in _RUNNERS
            or (pattern("python").fullmatch(name) and verb == ["-m"])
        ):
            # `mise exec go@1.24 -- go test`
            execs = verb in (["exec"], ["x"])
            after = words.index("--") if execs and "--" in words[:5] else 1
            words = words[after + 1 :]
        elif words[0] in {"-y", "--yes"}:
            words = words[1:]
        else:
            break
    if not words:
        return (), []
    name = posixpath.basename(words[0])
    rest = words[1:]
    # `vercel@latest` is a version of `vercel`.
    name = name.partition("@")[0] or name
    program = ["python" if pattern("python").fullmatch(name) else name]
    if name in names("many") and rest and not rest[0].startswith("-"):
        program.append(rest.pop(0))
        if program[1] in {"run", "compose", "exec"} and rest and not rest[0].startswith("-"):
            program.append(rest.pop(0))
    return tuple(program), rest


def _plain(target: str) -> str:
    target = target.removesuffix("...").rstrip("/")
    while target.startswith("./"):
        target = target[2:]
    return "" if target == "." else target


def again(
    call: ToolAttempt, failed: ToolAttempt, place: str | None, error_type: ErrorType = "unknown"
) -> bool:
    """Whether the call, if it succeeds, shows that an error of the failed one is gone."""
    if call.folder != failed.folder or call.text == failed.text or not failed.calls:
        return call.folder == failed.folder and call.text == failed.text
    wanted = blamed_calls(failed, error_type)
    return all(any(_covers(one, less, place) for one in call.calls) for less in wanted)


def blamed_calls(failed: ToolAttempt, error_type: ErrorType) -> tuple[ShellCall, ...]:
    """Return the programs of a failed line that have to run again before an error is gone."""
    if kind := _OF_TYPE.get(error_type):
        # Only what runs tests shows that a test passes.
        of_type = tuple(one for one in failed.calls if kind.search(" ".join(one.program)))
        if of_type:
            return of_type[-1:]
    # Of several programs in a line the last one failed, or none after the failed one ran.
    last = failed.calls[-1]
    if failed.masked or last.checks or last.program[:2] in ON_ALL:
        return (last,)
    return failed.calls


def _covers(call: ShellCall, failed: ShellCall, place: str | None) -> bool:
    if call.program != failed.program or call.program[-1] == _SCRIPT:
        return False
    more = call.options - failed.options
    less = failed.options - call.options
    if not all(pattern("harmless").fullmatch(option) for option in more):
        return False
    if not all(pattern("harmless").fullmatch(o) or pattern("narrowing").fullmatch(o) for o in less):
        return False
    if call.targets == failed.targets:
        return True
    if not call.checks or not call.targets or "" in call.targets:
        return call.checks
    wanted = failed.targets or ({_plain(place)} if place else set())
    return bool(wanted) and all(_within(one, call.targets) for one in wanted)


def _within(target: str, others: frozenset[str]) -> bool:
    """Whether one of the others is the target or contains it: a folder, a file, a class."""
    return any(target == one or target.startswith((one + "/", one + "::")) for one in others)


def how_it_went(call: ToolAttempt, output: str, *, failed: bool) -> CallOutcome:
    """Return how a command went; if its exit code is another command's, its output must say so.

    `failed` is by its exit code, or by the errors in its output.
    """
    if failed:
        return "badly"
    return "well" if not call.masked or passed(output) or _silent(call, output) else "unclear"


def _silent(call: ToolAttempt, output: str) -> bool:
    """Whether a check printed nothing, as checks do when they find nothing wrong."""
    bare = output.replace("(Bash completed with no output)", "").strip()
    if len(bare) > 20 or _TALKS.search(call.line) or not _FILTERED.search(call.line[-500:]):
        return False
    # The line itself may print "OK" at its end.
    own = not bare or f"echo {bare}" in call.line.replace('"', "").replace("'", "")
    return own and is_check(call.line)


def passed(output: str) -> bool:
    """Whether a check says in words that it passed."""
    return _says_passed(output[-2000:])


@lru_cache(maxsize=16)
def _says_passed(end: str) -> bool:
    last = end[-800:]
    if pattern("verdict").search(last) and not _FAILURES.search(last):
        return True
    return pattern("passed").search(end) is not None and not _FAILED.search(end)


def proves(line: str, error_type: ErrorType) -> bool:
    """Whether a line is a check that can show that somebody else's error is gone."""
    kind = _OF_TYPE.get(error_type)
    return is_check(line) and (
        kind is None or any(kind.search(" ".join(one.program)) for one in shell_call(line).calls)
    )


def gives_verdict(line: str) -> bool:
    """Whether a line checks the work: with a known tool, or with a script that is named so."""
    if is_check(line):
        return True
    calls = shell_call(line[:_READ]).calls
    return any(_is_check_script(call) for call in calls)


def _is_check_script(call: ShellCall) -> bool:
    program = call.program[0]
    scripts = call.targets if program in _RUNS_SCRIPTS else {program}
    is_named_so = any(_CHECK_SCRIPT.search(script) for script in scripts)
    return is_named_so or (program in _RUNS_SCRIPTS and "--test" in call.options)


def is_check(line: str) -> bool:
    """Whether a line runs tests, a build or a linter, directly or through a task."""
    return bool(_CHECKS.search(line[:_READ])) and any(one.checks for one in shell_call(line).calls)


def short(line: str) -> str:
    """Return a command line as it is shown: its first line, without leading `cd`, cut short."""
    text = GOING.sub("", line.strip()[:_READ].replace("\\\n", " "))
    text = " ".join(text.partition("\n")[0].split())
    # Redact before cutting: half a secret would not be recognized.
    return clip(redact(text), _SHORT).replace("`", "'")


def shown(line: str, program: tuple[str, ...] = ()) -> str:
    """Return a command line as it is shown; of a long one, the command that runs the program."""
    whole = short(line)
    lines = GOING.sub("", line.strip()).count("\n")
    if not program or not (lines or whole.endswith("\u2026")):
        return whole
    for command in commands(line):
        if _works(command) and _shell_call(command).program == program:
            return short(shlex.join(command.words))
    return whole


def command_of(line: str, program: tuple[str, ...]) -> str:
    """Return the command of a line that runs a program, with a PATH that is set for it."""
    path = ""
    for command in commands(line):
        if command.words[0] == "export" and any(w.startswith("PATH=") for w in command.words):
            path = f"{_typed(command.words)} && "
        if _works(command) and _shell_call(command).program == program:
            whole = redact(path + _typed(command.words)).replace("`", "'")
            return whole if len(whole) <= _LONGEST_SHOWN else ""
    return ""


def _typed(words: list[str]) -> str:
    """Return the words as a person would type them; a folder or a variable needs no quotes."""
    return " ".join(w if _NEEDS_NO_QUOTES.fullmatch(w) else shlex.quote(w) for w in words)


def invoked(line: str, program: str) -> str:
    """Return how a line invokes a program: its path or wrapper, and a PATH that is set for it."""
    path = ""
    for command in commands(line):
        if command.words[0] == "export" and any(w.startswith("PATH=") for w in command.words):
            path = f"{_typed(command.words)} && "
        found, rest = _program(command)
        if found[:1] == (program,):
            words = command.words[: len(command.words) - len(rest) - len(found[1:])]
            return path + _typed(words)
    return ""


def moved(call: ToolAttempt, failed: ToolAttempt, wrong: str) -> str:
    """Return a call that passed in another folder, or on another target, instead of one that
    failed because of its own; "" if it is another program."""
    programs = {one.program for one in failed.calls}
    program = next((one.program for one in call.calls if one.program in programs), ())
    if not program or program[-1] == _SCRIPT:
        return ""
    ours = command_of(call.line, program)
    theirs = command_of(failed.line, program)
    if not ours or not theirs:
        return ""
    if (gone := _went(failed.line)) and gone in wrong:
        return ""  # the folder does not exist
    folder = _went(call.line)
    if posixpath.isabs(folder) or (not folder and call.folder != failed.folder):
        folder = posixpath.relpath(call.folder, failed.folder) if failed.folder else ""
    moves = call.folder != failed.folder and folder not in {"", "."}
    if ours == theirs:
        return f"`{theirs}` in the folder `{folder}`" if moves else ""
    return f"`{f'cd {folder} && ' if moves else ''}{ours}` instead of `{theirs}`"


def _went(line: str) -> str:
    """Return the folder that a line goes to first, or ""."""
    there = GOING.match(" ".join(line[:_READ].split()))
    return there[0].strip(" ;&").removeprefix("cd ").strip("'\"") if there else ""


def varied(call: ToolAttempt, failed: ToolAttempt) -> str:
    """Return a call that passed with more or fewer options than the one that failed.

    A check on fewer targets proves nothing.
    """
    if not call.calls or not failed.calls or call.folder != failed.folder:
        return ""
    new = call.calls[-1]
    old = failed.calls[-1]
    if new.program != old.program or new.program[-1] == _SCRIPT or new.program[:2] in ON_ALL:
        return ""
    is_more = new.options >= old.options and new.targets >= old.targets
    is_less = new.options <= old.options and new.targets == old.targets
    if new == old or not (is_more or is_less):
        return ""
    differ = (new.options ^ old.options) | (new.targets ^ old.targets)
    if all(pattern("harmless").fullmatch(o) or pattern("narrowing").fullmatch(o) for o in differ):
        return ""
    if new.checks and not (old.targets and new.options != old.options):
        return ""
    return exchanged(command_of(call.line, new.program), command_of(failed.line, old.program))


def instead_of(call: ToolAttempt, failed: ToolAttempt, wrong: str = "") -> str:
    """Return what passed instead of a line that was called wrongly; "" if they are unrelated.

    Another program counts only if the error, `wrong`, is that the first one is missing.
    """
    core = _core(call.line)
    failed_core = _core(failed.line)
    if core == failed_core:  # perhaps the part that only shows the output was wrong
        core, failed_core = (" ".join(one.line[:_READ].split()) for one in (call, failed))
    bare = GOING.sub("", core)
    failed_bare = GOING.sub("", failed_core)
    if bare != failed_bare:  # else perhaps one went to a folder that does not exist
        core = bare
        failed_core = failed_bare
    new = _words(core)
    old = _words(failed_core)
    part = new <= old or old <= new
    same_file = any("." in word and "/" in word for word in new & old)
    alike = part or same_file or len(new & old) > len(new | old) / 2
    if core == failed_core or not alike:
        return ""
    programs = {one.calls[-1].program[0] for one in (call, failed) if one.calls}
    if not part and len(programs) > 1 and not pattern("missing").search(wrong):
        return ""
    return exchanged(core, failed_core)


def _core(line: str) -> str:
    """Return a line without what changes nothing: messages, waits, less or more output."""
    text = line.strip()
    if "<<" in text:
        text = pattern("heredoc").sub(" ", text[:_LONGEST])
    text = text[:_READ]
    if pattern("has a message").search(text):
        text = pattern("message").sub("", text)
    return " ".join(_SHOWN.sub("", pattern("wait").sub("", text)).split())


def exchanged(line: str, other: str) -> str:
    """Return "`line` instead of `other`", with everything that differs; "" if that is too long."""
    whole = (line, other)
    mine, others = ([shlex.join(one.words) for one in commands(text)] for text in (line, other))
    differ = [(a, b) for a, b in zip(mine, others, strict=False) if a != b]
    pairs = [whole]
    if len(mine) == len(others) and len(differ) == 1:
        pairs.insert(int(max(map(len, whole)) <= _SHORT), differ[0])
    pairs.append(_differing(*whole))
    for one, another in pairs:
        ours, theirs = (redact(" ".join(text.split())).replace("`", "'") for text in (one, another))
        if ours != theirs and ours and theirs and max(len(ours), len(theirs)) <= _LONGEST_SHOWN:
            return f"`{ours}` instead of `{theirs}`"
    return ""


def _differing(line: str, other: str) -> tuple[str, str]:
    """Return two lines with "\u2026" for the words that are the same, but the program's."""
    ours = line.split()[:_MOST_WORDS]
    theirs = other.split()[:_MOST_WORDS]
    mine = list[str]()
    others = list[str]()
    for change, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if change != "equal":
            mine += ours[a:b]
            others += theirs[c:d]
            continue
        same = ours[a:b]
        if len(same) > 1 or len(same[0]) > _LONG_WORD:
            same = [*same[: 2 * (a == 0)], "\u2026"]
        mine += same
        others += same
    return " ".join(mine), " ".join(others)


def _words(text: str) -> set[str]:
    return {word.replace("\\", "/").strip("'\"").removeprefix("./") for word in _WORD.findall(text)}
