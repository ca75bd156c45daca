"""What a person's rule forbids, as the shapes of commands and the paths that it is about.

"Use pnpm, not npm" is about `npm`, "never run the migrations here" about the commands of this
project that migrate. A rule that names no command and no file has no target: the person can still
give it one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from ralph.capture.rules import names
from ralph.capture.shapes import Shape, stripped
from ralph.capture.shell import LOOKERS, READERS, commands
from ralph.text.tokens import tokens

Subject = Literal["command", "path"]
# Programs of which a project uses one: who asks for one does not want the others.
_ALTERNATIVES = (("npm", "yarn", "pnpm", "bun"), ("pip", "uv", "poetry", "pipenv"))
_MOST_TARGETS = 3
_MOST_SHAPES = 2
_LEAST_NOUN = 4
_MOST_WISH_WORDS = 9

_CODE = re.compile(r"`([^`\n]{2,120})`")
_NEVER = re.compile(
    r"(?i)\b(?:never|do ?n[o']?t|don\u2019t|do not|must ?n[o']?t|must not|should ?n[o']t"
    r"|should not|no longer|stop|avoid)\b"
)
_INSTEAD = re.compile(r"(?i)\b(?:instead of|rather than|in place of|and not|, ?not|not)\s+")
_BEFORE = re.compile(r"(?i)\bask me (?:first )?before\s+|\b(?:let me|i'?ll|i will)\s+(?:do the )?")
_CLAUSE_ENDS = re.compile(
    r"(?i)[;!?]|\.(?=\s|$)|,(?!\s*(?:or|nor)\b)"
    r"|\b(?:but|instead|because|since|unless|until|except|without|and (?:use|run|do))\b"
)
_ASKS = re.compile(
    r"(?i)\b(?:ask|check with|consult|confirm with|tell) me\b|\bwithout (?:asking|my)\b|\blet me\b"
    r"|\bunless i\b|\buntil i\b|\bi'?ll\b|\bi will\b"
)
_USES = re.compile(
    r"(?i)^\W*(?:\w+\W+){0,4}?use\s+`?([a-z][\w.-]+)`?\b(?! (?:instead|rather|for)\b)"
)
_RUNS = re.compile(r"(?i)\b(?:us(?:e|ing)|run(?:ning)?|call(?:ing)?|with|via|start(?:ing)?)\s+")
# What git does, as people say it; what may follow it if it is about the deed itself.
_GIT = re.compile(
    r"(?i)^\W*(?:ever |just |also |automatically |directly )*"
    r"(?P<force>force[- ])?(?P<verb>commit|push|merge|rebase|amend|stash|squash)(?:ing)?\b"
    r"(?P<rest>.*)"
)
_AND_GIT = re.compile(r"(?i)\W*(?:or|and) (?P<verb>commit|push|merge|rebase)\b(?P<rest>.*)")
_DEED = re.compile(
    r"(?i)^\W*(?:$|(?:any |the |my |your |these |those )?(?:changes|code|anything|it"
    r"|them|this|that)\b|yourself|on your own|automatically|without|unless|until|directly|before"
    r"|for|again|when|if|any ?more|here|now|to\b)"
)
_BRANCH = re.compile(
    r"(?i)\b(?:to|on|into|onto) (?:the )?`?(main|master|develop|production|release)\b"
)
_CHANGES = re.compile(
    r"(?i)\b(?:edit|chang|modif|touch|updat|delet|remov|writ|overwrit|renam|mov|reformat|format)\w*"
)
_PATH = re.compile(
    r"(?:[\w.@+*-]+/)+[\w.@+*-]*|[\w@+*-][\w.@+*-]*\.[A-Za-z]\w{0,7}\b|(?<!\w)\.env\b"
)
_FOLDER = re.compile(r"(?i)\b([\w.-]+) (?:folder|directory|dir)\b")
_PLAIN = re.compile(r"[\w./:@=+,~-]+")
# Words after a program's name that are not its arguments.
_PROSE = frozenset(
    "a an the here there for in on to at of and or nor when if anymore any again directly yourself"
    " it this that these those from with without before after now please ever unless until because"
    " command commands script scripts tool as is are".split()
)
# Words of a rule that name no work.
_EMPTY = frozenset(
    "this that these those here there with without from into ever again project repo repository"
    " yourself please command commands script scripts thing things anything everything change"
    " changes code file files use using run running make want have does work time".split()
)


class Target(msgspec.Struct, frozen=True):
    """What a check applies to: the shape of a command, or a path or a pattern of paths."""

    subject: Subject
    key: str


def wants_to_be_asked(rule: str) -> bool:
    """Whether a rule leaves the deed to the person, instead of forbidding it."""
    return _ASKS.search(rule) is not None


def asks_for_program(sentence: str) -> bool:
    """Whether a short sentence wants one of several programs used: "please use pnpm"."""
    if len(sentence.split()) > _MOST_WISH_WORDS:
        return False
    wanted = _USES.search(sentence)
    return wanted is not None and any(wanted[1].lower() in group for group in _ALTERNATIVES)


def targets_of(
    rule: str, lines: Sequence[str], paths: Sequence[str], *, refused: str = ""
) -> list[Target]:
    """Return what a rule is about; nothing if that is not clear.

    `lines` are the commands that sessions of the project ran, `paths` its files, the newest last.
    `refused` is the command that the person turned down with these words.
    """
    known = _known_programs(lines)
    found: list[Target] = []
    for region in _regions(rule):
        found += _in_region(region, lines, paths, known)
    if not found and (wanted := _USES.search(rule)):
        found += _alternatives(wanted[1].lower(), known)
    if not found and refused and (shape := _shape_of_line(refused)):
        found.append(Target("command", shape.key))
    return list(dict.fromkeys(found))[:_MOST_TARGETS]


def target_from(text: str, subject: Subject) -> Target | None:
    """Return the target that a person writes down: a command line, or a path."""
    if subject == "path":
        path = text.strip().replace("\\", "/").removeprefix("./").rstrip("/")
        return Target("path", path) if path and "\t" not in path else None
    shape = _shape_of_line(text)
    return Target("command", shape.key) if shape else None


def _regions(rule: str) -> Iterator[str]:
    """Yield what stands after each word that forbids, to the end of its clause."""
    for cue in (_NEVER, _INSTEAD, _BEFORE):
        for match in cue.finditer(rule):
            rest = rule[match.end() :]
            end = _CLAUSE_ENDS.search(rest)
            region = rest[: end.start()] if end else rest
            if region.strip():
                yield region


def _in_region(
    region: str, lines: Sequence[str], paths: Sequence[str], known: frozenset[str]
) -> list[Target]:
    for code in _CODE.findall(region):
        if _CHANGES.search(region) and _PATH.fullmatch(code):
            return [Target("path", _known_path(code, paths))]
        if shape := _shape_of_line(code):
            return [Target("command", shape.key)]
    if _CHANGES.search(region):
        return [Target("path", path) for path in _paths_in(region, paths)]
    if shapes := _git_shapes(region) or list(_named_shapes(region, lines, known)):
        return [Target("command", shape.key) for shape in shapes]
    return [Target("command", shape.key) for shape in _shapes_about(region, lines)]


# -- Commands.


def _known_programs(lines: Sequence[str]) -> frozenset[str]:
    called = (stripped(one) for line in lines for one in commands(line))
    programs = {words[0] for words in called if words and _PLAIN.fullmatch(words[0])}
    return frozenset(programs - READERS - LOOKERS)


def _shape_of_line(line: str) -> Shape | None:
    """Return the shape of a command line that a rule quotes: all of its words."""
    for one in commands(line):
        words = [word for word in stripped(one) if _PLAIN.fullmatch(word)]
        if words and words[0] not in {"cd", "export"}:
            return _shape(words)
    return None


def _shape(words: Sequence[str]) -> Shape:
    size = 2 if len(words) > 1 and words[1][0] not in "-./" and words[0] in names("many") else 1
    return Shape(tuple(words[:size]), tuple(words[size:]))


def _git_shapes(region: str) -> list[Shape]:
    found = _GIT.match(region)
    if found is None:
        return []
    other = _AND_GIT.match(found["rest"])
    if not _DEED.match(other["rest"] if other else found["rest"]):
        return []
    verb = found["verb"].lower()
    if verb == "amend":
        return [Shape(("git", "commit"), ("--amend",))]
    if found["force"]:
        return [Shape(("git", verb), (option,)) for option in ("--force", "-f")]
    branch = _BRANCH.search(found["rest"])
    shapes = [Shape(("git", verb), (branch[1].lower(),) if branch else ())]
    if other:
        shapes.append(Shape(("git", other["verb"].lower())))
    return shapes


def _named_shapes(region: str, lines: Sequence[str], known: frozenset[str]) -> Iterator[Shape]:
    """Yield the programs that a clause names: "use npm or yarn", "run npm install"."""
    cue = _RUNS.search(region)
    rest = region[cue.end() :] if cue else region
    for part in re.split(r"(?i)\s*(?:,|/| or | nor | and )\s*", rest.strip()):
        words = part.removeprefix("the ").split()
        name = words[0].strip("\"'").rstrip(".,") if words else ""
        if name not in known and name not in names("many"):
            return
        shape = _shape([name, *_arguments(words[1:])])
        # "Don't go overboard" is about no program, "don't run go" is.
        if not cue and len(words) > 1 and not any(map(shape.fits, lines)):
            return
        yield shape


def _arguments(words: Sequence[str]) -> list[str]:
    found: list[str] = []
    for word in words:
        plain = word.rstrip(".,")
        if plain.lower() in _PROSE or not _PLAIN.fullmatch(plain):
            break
        found.append(plain)
    return found


def _alternatives(wanted: str, known: frozenset[str]) -> Iterator[Target]:
    for programs in _ALTERNATIVES:
        if wanted in programs:
            others = [name for name in programs if name != wanted]
            met = [name for name in others if name in known]
            for name in met or others[:1]:
                yield Target("command", name)


def _shapes_about(region: str, lines: Sequence[str]) -> list[Shape]:
    """Return the commands of the project that a clause describes: "run the migrations"."""
    wanted = {
        stem
        for word in re.findall(r"[A-Za-z][\w-]{3,}", region)
        if word.lower() not in _EMPTY and word.lower() not in _PROSE
        for stem in tokens(word)
        if len(stem) >= _LEAST_NOUN
    }
    if not wanted:
        return []
    met: dict[Shape, int] = {}
    for line in lines:
        for one in commands(line):
            shape = _shape_with(stripped(one), wanted)
            if shape is not None:
                met[shape] = met.get(shape, 0) + 1
    # A word that fits many different commands describes none of them.
    if len(met) > _MOST_SHAPES:
        return []
    return sorted(met, key=lambda shape: -met[shape])


def _shape_with(words: Sequence[str], wanted: set[str]) -> Shape | None:
    """Return the shape of a command up to the word that says what is done, or None."""
    if not words or words[0] in READERS | LOOKERS or words[0] in ("cd", "git", "gh"):
        return None
    for place, word in enumerate(words[:4]):
        if word.startswith("-") or not _PLAIN.fullmatch(word):
            continue
        stem = word.rpartition("/")[2]
        parts = {one for part in re.split(r"[-_:.]", stem) for one in tokens(part)}
        if parts & wanted:
            if place < 2:
                return Shape(tuple(words[: place + 1]))
            return Shape(
                (words[0],), tuple(one for one in words[1 : place + 1] if not one.startswith("-"))
            )
    return None


# -- Files.


def _paths_in(region: str, paths: Sequence[str]) -> Iterator[str]:
    named = [*_PATH.findall(region)]
    named += [name for name in _FOLDER.findall(region) if _is_folder(name, paths)]
    for name in named:
        yield _known_path(name, paths)


def _is_folder(name: str, paths: Iterable[str]) -> bool:
    return any(f"/{name}/" in f"/{path}" for path in paths)


def _known_path(name: str, paths: Sequence[str]) -> str:
    """Return the project's path for a name; a pattern if the name may be in any folder."""
    plain = name.rstrip("/").removeprefix("./")
    for path in reversed(paths):
        if path == plain or path.startswith(f"{plain}/"):
            return plain
        if path.endswith(f"/{plain}"):
            return path
        if f"/{plain}/" in path:
            return path[: path.index(f"/{plain}/") + len(plain) + 1]
    return plain if "/" in plain or "*" in plain else f"*{plain}"


def shown_target(target: Target) -> str:
    """Return a target as people read it."""
    if target.subject == "path":
        return target.key
    return " ".join(target.key.replace(" | ", " ").split())
