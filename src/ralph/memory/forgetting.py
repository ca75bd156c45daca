"""What forgetting removes besides the records: learnings and texts of the plan, copies in files.

A record's words also stand in the plan, and in small files that hooks, imports and runs keep for
themselves. They are looked for there, and what holds them goes; what cannot be removed is told.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from ralph import disk
from ralph.errors import BadInput, BadPlan
from ralph.plan.model import KINDS
from ralph.records.iteration import TRUNCATED
from ralph.records.learning import read_learning
from ralph.text.tokens import tokens

if TYPE_CHECKING:
    from ralph.memory.plan_stream import FeatureLearning
    from ralph.memory.ralph import Ralph
    from ralph.plan.store import Plan


# -- How far each session's file was brought in. Derived: what is lost is only read again.


_VERSION = 1
_BEGINNING = 256


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a file is kept, and how the file looked then.

    `waits_s`: its last exchange was under way; it counts as over once the file was left alone for
    so long.
    """

    size: int = 0
    mtime_ns: int = 0
    offset: int = 0
    line: int = 0
    crc: int = 0
    title: str = ""
    waits_s: float = 0.0


class _Marks(msgspec.Struct):
    version: int
    files: dict[str, Mark]


def read_marks(path: Path) -> dict[str, Mark]:
    """The marks by file; none where they are missing, damaged or of another version."""
    try:
        marks = msgspec.json.decode(path.read_bytes(), type=_Marks)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return marks.files if marks.version == _VERSION else {}


def write_marks(path: Path, files: dict[str, Mark]) -> None:
    """Put the marks on disk, whole."""
    disk.replace(path, msgspec.json.encode(_Marks(_VERSION, files)))


def still_fits(mark: Mark, file: BinaryIO, size: int) -> bool:
    """Whether the file still begins with what was read, and reading can go on at a line."""
    if not 0 < mark.offset <= size or beginning(file, mark.offset) != mark.crc:
        return False
    file.seek(mark.offset - 1)
    return file.read(1) == b"\n"


def beginning(file: BinaryIO, offset: int) -> int:
    """A number that tells the beginning of one file from another's."""
    file.seek(0)
    return zlib.crc32(file.read(min(offset, _BEGINNING)))


# Shorter texts stand in too many places to tell anything.
_TELLING_CHARS = 12
# Shorter texts (titles, paths) stand in a prompt whatever was recalled.
_QUOTED_CHARS = 60
# What takes the place of forgotten words in a plan's text, and where names stand instead.
GONE = "[forgotten]"
_NAMES = frozenset(
    "name id feature discipline blocked_by context_files knowledge_paths path mcp_servers".split()
)
# With more texts than this the small files go as a whole: they can all be made again.
_MOST_TEXTS = 2000
_LOCK_TIMEOUT_S = 5.0
_LARGEST_COPY_BYTES = 64 * 1024 * 1024


def texts_of(body: bytes) -> Iterator[str]:
    """Every text in a record's body."""
    try:
        left: list[Any] = [msgspec.json.decode(body)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield body.decode("utf-8", "replace")
        return
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one


def tells_of(title: str, gone: Iterable[str], left: Iterable[str]) -> bool:
    """Whether a title was made from what goes: it begins so, or has a word that only that has."""
    gone = list(gone)
    begins = _folded(title.removesuffix(TRUNCATED))
    if begins and any(_folded(text).startswith(begins) for text in gone):
        return True
    own = {word for text in gone for word in tokens(text)}
    return not (own - {word for text in left for word in tokens(text)}).isdisjoint(tokens(title))


class Words:
    """The words of what is forgotten, to be looked for elsewhere."""

    def __init__(self, texts: Iterable[str], match: str = "") -> None:
        # Blanks around it count: they keep longer words out.
        self.match = _spaced(match)
        # As it is written: any case, line breaks anywhere.
        self.written = re.compile(r"\s+".join(map(re.escape, re.split(r"\s+", match))), re.I)
        self._texts = {text for text in set(map(_folded, texts)) if len(text) >= _TELLING_CHARS}

    def stand_in(self, text: str) -> bool:
        """Whether a text holds what was matched, or repeats one of the texts or a part of it."""
        plain = _folded(text.removesuffix(TRUNCATED))
        if len(self._texts) > _MOST_TEXTS or (self.match and self.match in plain):
            return True
        long = len(plain) >= _TELLING_CHARS
        return any(one in plain or (long and plain in one) for one in self._texts)

    def stand_in_any(self, body: bytes) -> bool:
        """The same of every text in a file of JSON."""
        return any(map(self.stand_in, texts_of(body)))

    def match_in(self, body: bytes) -> bool:
        """Whether a record's body holds the match, in one of its texts or as it is written."""
        texts = (body.decode("utf-8", "replace"), *texts_of(body))
        return any(self.match in _spaced(text) for text in texts)

    def in_file(self, data: bytes) -> bool:
        """Whether a file's bytes hold the match or one of the longer texts; line breaks count as
        blanks."""
        text = data.decode("utf-8", "replace")
        folded = _folded(text)
        wanted = [one for one in self._texts if len(one) >= _QUOTED_CHARS]
        if self.match:
            wanted.append(self.match)
        return any(one in folded for one in wanted) or any(map(self.match_on, text.splitlines()))

    def match_on(self, line: str) -> bool:
        """Whether a line holds the match; what a plan keeps of a removed learning are stems."""
        if not self.match or self.match in _folded(line):
            return bool(self.match)
        stems = tokens(self.match)
        return bool(stems) and "words:" in line and set(stems) <= set(line.split())


# -- the plan


def learnings_of(ralph: Ralph) -> list[FeatureLearning]:
    """Every learning of the plan; none while the plan cannot be read, which its users are told."""
    from ralph.memory.plan_stream import LEARNING, plan_content  # which hooks start without

    return [plan_content(one) for one in ralph.plan.records() if one.kind == LEARNING]


def plan_places(ralph: Ralph, words: Words) -> list[str]:
    """The lines of the plan that hold the text that was matched, as file:line."""
    plan, found = _plan(ralph), list[str]()
    for kind in KINDS if words.match else ():
        text = (plan.raw(kind) or b"").decode("utf-8", "replace")
        lines = enumerate(text.splitlines(), 1)
        at = [f"{plan.file_name(kind)}:{n}" for n, line in lines if words.match_on(line)]
        found += at or ([plan.file_name(kind)] if words.match in _folded(text) else [])
    return found


def forget_in_plan(ralph: Ralph, learnings: Collection[FeatureLearning], words: Words) -> int:
    """Take learnings out of the plan, and the matched words out of its other texts.

    Returns how many learnings and texts changed. Nothing stays that would keep a learning from
    being learned again: that would tell of it.
    """
    edit = _PlanEdit({one.id for one in learnings}, words)
    if learnings or plan_places(ralph, words):
        with contextlib.suppress(BadPlan), _plan(ralph).editing("words forgotten", *KINDS) as data:
            for kind in KINDS:
                data[kind] = edit.without(data[kind])
    if learnings or words.match:  # the index may have what the plan had earlier
        ralph.store.erase_soon(ralph.plan.target(), afresh=True)
    return edit.changed


class _PlanEdit:
    """Plain data of the plan without some learnings and without the matched words."""

    def __init__(self, learnings: Collection[str], words: Words) -> None:
        self.changed = 0
        self._learnings, self._words = learnings, words

    def without(self, value: Any, key: object = "") -> Any:
        if isinstance(value, dict):
            return {name: self.without(one, name) for name, one in value.items()}
        if isinstance(value, list):
            left = [one for one in value if not self._goes(key, one)]
            self.changed += len(value) - len(left)
            return [self.without(one, key) for one in left]
        if not isinstance(value, str) or not self._words.match or key in _NAMES:
            return value
        text = self._words.written.sub(GONE, value)
        self.changed += text != value
        return text

    def _goes(self, key: object, item: Any) -> bool:
        if key == "removed_learnings":
            return self._words.match_on(f"words: {item.get('words')}")
        with contextlib.suppress(BadInput):
            return key == "learnings" and read_learning(item).id in self._learnings
        return False


def _plan(ralph: Ralph) -> Plan:
    from ralph.plan.store import Plan  # only here: whoever lists conversations reads no YAML

    return Plan(ralph.project.root, state=ralph.project.cache)


# -- copies in files


def remove_copies(ralph: Ralph, words: Words, *, versions: bool) -> list[str]:
    """Take the words out of everything that Ralph can make again; says of what kind that was.

    `versions`: the plan has changed, so that its old versions hold what was taken out.
    """
    home, cache = ralph.store.home, ralph.project.cache
    plan = _plan(ralph).cache
    plans, left = [*plan.glob("versions/*"), *plan.glob("rejected/*")], "spool/**/*.left-*"
    found = {
        "note{s} of hooks": _hook_notes(home / "cache" / "hooks", words),
        "log line{s}": _without_lines(home.glob("cache/**/hooks.log*"), words.stand_in),
        "line{s} that could not be delivered": _without_lines(home.glob(left), words.stand_in),
        "title{s} of imported sessions": _import_marks(home / "cache" / "imports", words),
        "note{s} of workers": _whole(home.glob("cache/workers/*.json"), words.stand_in_any),
        "cop{y} of the plan": _whole(plans, lambda data: versions or words.in_file(data)),
        "proposal{s} of a plan": _whole(cache.glob("braindump/*"), words.in_file),
        "unfinished run{s}": sum(map(_drop_run, _runs(ralph, words))) if words.match else 0,
    }
    endings = ({"s": "s", "y": "ies"}, {"s": "", "y": "y"})
    return [f"{n} {what.format(**endings[n == 1])}" for what, n in found.items() if n]


def _runs(ralph: Ralph, words: Words) -> list[Path]:
    """The folders of runs whose prompt, plan or output holds the words."""
    folders = sorted(ralph.project.cache.glob("runs/*/"))
    return [one for one in folders if any(words.in_file(_read(file)) for file in one.glob("*"))]


def _drop_run(folder: Path) -> bool:
    """Delete what a killed run left; one that is under way stays."""
    try:
        with disk.lock(folder / "lock", timeout_s=0.0):
            shutil.rmtree(folder)
    except (OSError, disk.Busy):
        return False
    return True


def old_journals(ralph: Ralph, ids: Collection[str]) -> list[str]:
    """Files of journals that moved to a server, and still hold these."""
    if not ralph.config.settings.journal_url:
        return []
    wanted = [one.encode() for one in ids]
    own = ralph.project.journals
    files = [*(own / name for name in disk.names(own)), *ralph.store.home.glob("journal/*/*.jsonl")]
    found = [file for file in files if any(one in _read(file) for one in wanted)]
    return [f"{file}, from before the journal moved to a server" for file in sorted(found)]


def left_to_the_person(ralph: Ralph, words: Words) -> list[str]:
    """Where the text still stands: in names and comments of the plan, in runs under way."""
    left = [f"{place}, your plan: edit it" for place in plan_places(ralph, words)]
    wait = "a run under way: `ralph run` finishes it, then forget again"
    return [*left, *(f"{folder}, {wait}" for folder in _runs(ralph, words))]


# -- the kinds of files


def _hook_notes(folder: Path, words: Words) -> int:
    """Errors noted in sessions under way, and the texts that sessions begin with."""
    gone = 0
    for own in sorted(folder.glob("*")):
        # Made anew when a session begins; it tells in other words what is no longer there.
        gone += _whole([own / "brief.json", *own.glob("sessions/*.tmp")], lambda data: True)
        if not (notes := sorted(own.glob("sessions/*.jsonl"))):
            continue
        try:
            with disk.lock(own / "lock", timeout_s=_LOCK_TIMEOUT_S):
                gone += _without_lines(notes, lambda line: _notes(line, words))
        except disk.Busy:
            gone += _whole(notes, words.stand_in_any)
    return gone


def _notes(line: str, words: Words) -> bool:
    """Whether a line of a note repeats the words: only an error's has any."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return words.stand_in(line)
    value = told.get("value") if isinstance(told, dict) and told.get("note") == "error" else None
    texts = value.values() if isinstance(value, dict) else ()
    return any(isinstance(text, str) and words.stand_in(text) for text in texts)


def _import_marks(folder: Path, words: Words) -> int:
    """A session's title is noted with how far its file was read."""
    gone = 0
    for file in sorted(folder.glob("*.json")):
        with disk.lock(file.with_suffix(".lock"), timeout_s=_LOCK_TIMEOUT_S):
            marks = read_marks(file)
            telling = {i: m for i, m in marks.items() if m.title and words.stand_in(m.title)}
            untitled = {i: msgspec.structs.replace(m, title="") for i, m in telling.items()}
            if telling:
                write_marks(file, marks | untitled)
            gone += len(telling)
    return gone


def _whole(files: Iterable[Path], holds: Callable[[bytes], bool]) -> int:
    """Delete the files that hold it; how many those were."""
    gone = 0
    for file in files:
        if file.is_file() and not file.is_symlink() and holds(_read(file)):
            disk.remove(file)
            gone += 1
    return gone


def _without_lines(files: Iterable[Path], repeats: Callable[[str], bool]) -> int:
    """Rewrite files of lines without those that repeat it; how many those were."""
    gone = 0
    for file in list(files):
        if file.is_file() and not file.is_symlink():
            lines = _read(file).splitlines(keepends=True)
            kept = [line for line in lines if not repeats(line.decode("utf-8", "replace"))]
            if len(kept) < len(lines):
                disk.replace(file, b"".join(kept))
            gone += len(lines) - len(kept)
    return gone


def _read(file: Path) -> bytes:
    try:
        return disk.read(file, largest=_LARGEST_COPY_BYTES)
    except OSError:
        return b""


def _folded(text: str) -> str:
    return _spaced(text).strip()


def _spaced(text: str) -> str:
    return re.sub(r"\s+", " ", text).casefold()
