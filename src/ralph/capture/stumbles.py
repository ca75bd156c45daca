"""Failures that say nothing about the project: a client's own stumbles, and probes.

A stumble is a call that the client itself turned down: not approved, not read yet, cancelled. A
probe is a command that answers a question with its exit code. Both are counted, not kept.
"""

from __future__ import annotations

import posixpath
import re
from typing import Literal

from ralph.capture.shell import ShellCommand, commands, deciding

StumbleKind = Literal[
    "denied", "refused", "cancelled", "blocked", "edit", "read", "call", "sandbox", "probe"
]

# What the clients say instead of running a tool. One row, one reason.
STUMBLES: tuple[tuple[StumbleKind, str], ...] = (
    (
        "refused",
        r"The user doesn't want to (?:proceed|take this action)|User rejected tool use"
        r"|\[Request interrupted by user|(?:aborted|rejected|declined) by (?:the )?user"
        r"|user (?:rejected|declined)",
    ),
    (
        "denied",
        r"requires? approval|requested permissions? to |haven't granted it"
        r"|[Pp]ermission to use .{1,80} (?:has been )?denied|denied by (?:the )?\w+"
        r"|Permission for this (?:action|tool)|has been denied|was declined",
    ),
    (
        "cancelled",
        r"Cancelled: parallel|Sibling tool call errored"
        r"|Tool use (?:was )?(?:interrupted|cancelled)",
    ),
    (
        "blocked",
        r"(?:was|is) blocked\b|^Blocked: |\bhook (?:error|blocked)|no access rule"
        r"|may not access path|path validation|statically analyzed|resolvable path"
        r"|allowed working director",
    ),
    (
        "edit",
        r"not been read yet|modified since read|unexpectedly modified"
        r"|String to replace not found|Found \d+ matches of the string|No changes to make"
        r"|apply_patch verification failed|Failed to find (?:expected lines|context)"
        r"|file_change failed",
    ),
    (
        "read",
        r"File does not exist|exceeds maximum allowed (?:tokens|size)|^EISDIR: "
        r"|Path does not exist|Output too large",
    ),
    (
        "call",
        r"InputValidationError|Unknown skill|No such tool available|unsupported call"
        r"|failed to parse|tool call error|shell cwd recovered",
    ),
)
# What a client's sandbox keeps from a command, which the same command may do outside of it.
SANDBOX = re.compile(
    r"\.git/\S*.{0,40}Operation not permitted|FETCH_HEAD.{0,20}not permitted|listen EPERM"
    r"|connecting to agent: Operation not permitted|sandbox(?:ed)? (?:denied|error)"
    r"|refs/\S+\.lock.{0,20}Operation not permitted"
)
_STUMBLES = tuple((kind, re.compile(pattern, re.M)) for kind, pattern in STUMBLES)
_WRAPPER = re.compile(r"\s*<tool_use_error>")
_RAN = re.compile(r"\s*(?:Error: )?Exit code:? -?\d")
_READ = 600


def stumble(output: str) -> StumbleKind | None:
    """Why the client itself turned a call down; None when the tool ran and failed."""
    start = output[:_READ]
    if _RAN.match(start):
        return None
    found = next((kind for kind, pattern in _STUMBLES if pattern.search(start)), None)
    return found or ("call" if _WRAPPER.match(start) else None)


# Ask something; their exit code is the answer.
_ASKING = frozenset(
    "grep egrep fgrep zgrep rg ag ack diff cmp test [ [[ which type pgrep pidof ls stat find cat"
    " bat head tail less file wc readlink realpath jq yq lsof nc ping true false : sed awk od xxd"
    " sleep"
    " Get-ChildItem Get-Content Test-Path Select-String Get-Command".split()
)
_ASKING_VERBS = {
    "git": frozenset(
        "log show diff grep rev-parse cat-file ls-tree ls-files ls-remote config merge-base branch"
        " describe status blame show-ref symbolic-ref remote for-each-ref rev-list check-ignore"
        " reflog name-rev".split()
    ),
    "gh": frozenset("view list status checks diff".split()),
    "docker": frozenset("ps images inspect logs".split()),
    "kubectl": frozenset("get describe logs".split()),
    "npm": frozenset("ls view outdated why".split()),
    "cargo": frozenset("tree metadata".split()),
}
_CHECK = re.compile(r"--check(?:=.*)?|--exit-code|--quiet|-q")
_CHECKED = frozenset("prettier black rustfmt cargo ruff gofmt dart terraform git grep".split())
# What they print when the answer is no.
_NO = re.compile(
    r"nothing (?:added )?to commit|no changes added to commit|No local changes to save"
    r"|No stash entries found|no pull requests found|no upstream configured|Everything up-to-date"
    r"|unknown revision or path|bad object [0-9a-f]|exists on disk, but not in"
    r"|not a valid object name|\b\d+ deselected\b|no tests ran|No tests found"
    r"|no checks reported",
    re.I,
)
# Says that a program was called wrongly, which is worth knowing.
USAGE = re.compile(
    r"\b(?:illegal|invalid|unrecogni[sz]ed|unknown|unexpected|unsupported)"
    r" (?:\w+ )?(?:option|argument|flag|switch|subcommand|parameter)"
    r"|\bcommand expected\b|\bnot accept\b|(?-i:Wrong expression)|is not recogni[sz]ed as"
    r"|command not found|no matches found|: == not found|parameter cannot be found"
    r"|operand invalid|syntax error",
    re.I,
)
_NEUTRAL = frozenset("cd pushd popd export set source . echo printf mkdir".split())
_CONTROL = frozenset({"done", "fi", "esac", "}", ")"})
_LISTING = frozenset("ls cat rm head tail stat find wc file du rg".split())
_NO_MATCH = re.compile(r"no matches found: (\S+)")
_WITHIN = frozenset({"ssh", "sudo", "env", "command", "time", "timeout", "xargs", "wsl"})


def is_probe(line: str, output: str) -> bool:
    """Whether a line that failed only asked a question, and was answered with no."""
    if _NO.search(output[-2000:]):
        return True
    found = deciding(line)
    if not found:
        return False
    if any(unmatched_listing(line, glob) for glob in _NO_MATCH.findall(output[-500:])):
        return True
    asking = [command for command in found if command.words[0] not in _NEUTRAL]
    return bool(asking) and all(_asks(command) for command in asking)


_INLINE = frozenset({"-c", "-e", "--eval", "-"})
_INTERPRETERS = re.compile(r"(?:python|pypy)[\d.]*|node|bun|deno|ruby|perl|php|pwsh|powershell")
_SCRATCH = re.compile(r"(?:/private)?/tmp/|/var/folders/|\\Temp\\|/Temp/|/scratchpad/")
_UNFOUND = re.compile(r"[Mm]odule not found|can't open file|[Cc]annot find module")
# What a throwaway script still tells about the project.
_LASTING = re.compile(r"ModuleNotFound|ImportError|[Nn]o module named|[Cc]annot find module")


def is_scratch(line: str, message: str) -> bool:
    """Whether an error is that of a script written for the moment, about nothing but itself."""
    if _UNFOUND.search(message) and _SCRATCH.search(message):
        return True
    for command in deciding(line):
        words = [word for word in command.words if "=" not in word.split("/")[0]] or command.words
        name = posixpath.basename(words[0])
        inline = any(word in _INLINE for word in words[1:3]) or ("<<" in line and len(words) < 3)
        if _INTERPRETERS.fullmatch(name) and inline:
            return not _LASTING.search(message)
    return False


def misused(line: str, output: str) -> str:
    """What a program in the line says about an option that it does not have; or nothing."""
    names = {posixpath.basename(command.words[0]) for command in commands(line)}
    found = _MISUSED.search(output[:4000]) or _MISUSED.search(output[-1000:])
    return found[0] if found and found["p"] in names else ""


_MISUSED = re.compile(
    r"^(?P<p>[\w.-]{1,40}): (?:illegal|invalid|unrecogni[sz]ed|unknown) option\b.{0,200}$", re.M
)


def unmatched_listing(line: str, glob: str) -> bool:
    """Whether a pattern of names that matched nothing was only to be listed."""
    holds = (one for one in commands(line) if any(glob in word for word in one.words))
    return any(posixpath.basename(one.words[0]) in _LISTING for one in holds)


def _asks(command: ShellCommand) -> bool:
    words = [word for word in command.words if "=" not in word.split("/")[0]] or command.words
    name = posixpath.basename(words[0])
    if name in _CONTROL:
        return True
    if name in _WITHIN:
        # `ssh host 'grep x y'`: what runs over there decides.
        inner = next((word for word in words[1:] if " " in word), "")
        if inner and name == "ssh":
            return is_probe(inner, "")
        rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return bool(rest) and posixpath.basename(rest[0]) in _ASKING
    if name == "sed" and any(word.startswith("-i") for word in words):
        return False
    if name in _ASKING:
        return True
    if name in _CHECKED and any(_CHECK.fullmatch(word) for word in words[1:]):
        return True
    if name == "gofmt" and "-w" not in words:
        return True
    verbs = [word for word in words[1:] if not word.startswith("-")]
    if name in {"git", "gh"} and len(words) > 2 and words[1] in {"-C", "-R"}:
        verbs = verbs[1:]
    asking = _ASKING_VERBS.get(name, frozenset())
    # `gh pr checks`: the second word is the verb.
    return any(verb in asking for verb in verbs[: 2 if name == "gh" else 1])
