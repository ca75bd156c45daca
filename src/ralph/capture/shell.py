"""What a shell command did to files, and whether its output is its own or a file's.

Only plain forms are understood (redirections, `tee`, `sed -i`, `cp`, `rm`, `git rm`, `mv`, `cd`,
joined by `&&`, `;` or lines). What is behind `||`, in a loop or a condition may not have happened,
and is not counted.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from functools import lru_cache
from typing import Literal

import msgspec

from ralph.capture.rules import names
from ralph.records.iteration import FileAction

_LONGEST = 20_000
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1[^\n]*\n.*?(?:\n\s*\2\s*(?=\n|\Z|\))|\Z)", re.S)
_SUBSHELL_CALL = re.compile(r"""^(?:/\S*/)?(?:ba|z|da)?sh\s+-l?i?c\s+(?P<inner>.+)$""", re.S)
_CONTROL = {"if", "for", "while", "until", "case", "function", "{", "("}
_TOKEN = re.compile(
    r"(?P<blank>(?:[ \t]|\\\r?\n)+)"
    r"|(?P<redirect>\d*(?:&>>?|>>|>\||>&|<&|<<<?-?|>|<))"
    r"|(?P<join>[\n\r;|&()][\n\r;|&() ]*)"
    r"|(?P<word>(?:[^\s'\"\\;|&()<>]+|'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\[^\r\n])+)"
    r"|(?P<bad>.)",
    re.S,
)
_QUOTED = re.compile(r"'(?P<plain>[^']*)'|\"(?P<soft>(?:[^\"\\]|\\.)*)\"|\\(?P<escaped>.)", re.S)
_NOT_PLAIN = re.compile(r"[*?$`{}\[\]<>|;&]")
_TO_FILE = {">", ">>", ">|", "1>", "1>>", "&>", "&>>"}
_JOINS = {"&&", ";", "\n", ";;"}
_PIPES = {"|", "|&"}

# Show what is in files (or in git's or Ralph's history), so errors in it are not news.
READERS = names("readers")
_GIT_READERS = frozenset("log show diff blame grep reflog shortlog cat-file stash ls-files".split())
# Look at the machine, and say little.
LOOKERS = names("lookers")
_SILENT = LOOKERS | frozenset(
    "cd pushd popd export set unset source . mkdir touch echo printf chmod rm mv cp clear".split()
)
_SCRIPT_WRITES = re.compile(r"writeFile|\.write\(|write_text|File\.write|['\"]w['\"]")
_SCRIPT_FILE = re.compile(r"['\"]([\w./-]{2,120}\.[a-z]{1,5})['\"]")
# Leaves something running behind its result.
LEFT = re.compile(r"&(?<![&<>|]&)(?![&>])|nohup\b|setsid\b|disown\b")


class ShellCommand(msgspec.Struct):
    """One simple command in a line, and what joined it to the one before."""

    words: list[str]
    joined: str = "\n"
    piped: bool = False
    # The file its output went into, and whether at its end.
    silenced: str = ""
    appends: bool = False


Origin = Literal["own", "file", "mixed"]


# The same line is asked for its effects and for its output's origin.
@lru_cache(maxsize=64)
def commands(line: str) -> tuple[ShellCommand, ...]:
    """The simple commands of a line, in order; none when it is not plain shell."""
    line = line.strip()[:_LONGEST]
    if called := _SUBSHELL_CALL.match(line):
        try:
            line = shlex.split(called["inner"])[0]
        except (ValueError, IndexError):
            return ()
    if "<<" in line:
        line = _HEREDOC.sub(" ", line)
    found, current = list[ShellCommand](), ShellCommand([])
    after_redirect: str | None = None
    for token in _TOKEN.finditer(line):
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
                current.piped = current.piped or join in {"|", "|&"}
                found.append(current)
            current = ShellCommand([], joined=join, piped=join in {"|", "|&"})
            after_redirect = None
    if current.words:
        found.append(current)
    return tuple(found)


def _unquoted(word: str) -> str:
    if "'" not in word and '"' not in word and "\\" not in word:
        return word
    return _QUOTED.sub(lambda q: q["plain"] or q["soft"] or q["escaped"] or "", word)


def file_effects(line: str, base: str) -> tuple[list[tuple[str, FileAction]], str]:
    """The files a successful command wrote, removed or moved, and the folder it ended in."""
    effects: list[tuple[str, FileAction]] = []
    here = base
    for command in commands(line):
        name = command.words[0]
        if name in _CONTROL or command.joined not in _JOINS:
            # From here on it is not sure what ran, but for what the pipe itself went through.
            if name == "tee" and command.joined in _PIPES:
                effects += [(posixpath.join(here, path), how) for path, how in _written(command)]
            break
        rest = command.words[1:]
        effects += [(posixpath.join(here, path), action) for path, action in _written(command)]
        if command.piped:
            continue
        if name == "git" and rest and rest[0] in {"rm", "mv"}:
            name, rest = rest[0], rest[1:]
            if "--cached" in rest or "-n" in rest or "--dry-run" in rest:
                continue
        if name == "cd":
            here = posixpath.normpath(posixpath.join(here, rest[0])) if rest else here
        elif name in {"rm", "unlink", "mv"}:
            paths = _paths(rest)
            if name == "mv":
                effects += _moved(paths, here)
            else:
                effects += [(posixpath.join(here, path), "deleted") for path in paths]
    return effects, here


def _written(command: ShellCommand) -> list[tuple[str, FileAction]]:
    """The files that a command writes: by redirection, `tee`, `sed -i` or `cp`."""
    name, rest = command.words[0], command.words[1:]
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
    """The files that a script on the command line writes, as far as it names them."""
    if not re.search(r" -[ce] ", line[:200]) or not _SCRIPT_WRITES.search(line):
        return []
    return list(dict.fromkeys(_SCRIPT_FILE.findall(line)))[:2]


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
        # A file with an ending moved to a name without one: the target is a folder.
        into = len(sources) > 1 or target.endswith("/") or target in {".", ".."}
        into = into or ("." in name and "." not in posixpath.basename(target))
        there = posixpath.join(target, name) if into else target
        effects.append((posixpath.join(here, source), "deleted"))
        effects.append((posixpath.join(here, there), "created"))
    return effects


@lru_cache(maxsize=64)
def origin(line: str) -> Origin:
    """Whether the output is the commands' own words, the content of files, or both."""
    kinds: set[str] = set()
    written: set[str] = set()
    previous_piped = False
    for command in commands(line):
        into_pipe = command.joined in {"|", "|&"} and previous_piped
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
    """Whose words a simple command prints: its `own`, a `file`s, or none (`silent`)."""
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


def deciding(line: str) -> list[ShellCommand]:
    """The commands whose exit code the line's may be: the last one, and those it waited for."""
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
    return deciders


@lru_cache(maxsize=64)
def is_masked(line: str) -> bool:
    """Whether the exit code of the line is not that of the work it does."""
    found = commands(line)
    if not found or "pipefail" in line:
        return False
    work = [
        at
        for at, one in enumerate(found)
        if one.joined not in _PIPES and kind_of(one.words) == "own"
    ]
    if not work or found[work[-1]].piped:
        return True
    return any(one.joined != "&&" for one in found[work[-1] + 1 :])
