"""Who changed the plan: what the agent's own tool calls tell about its direct edits.

An edit whose text is known is blamed only for what it did; one that is not known (a shell
command) is blamed for everything that changed in its file. What no tool call explains was
somebody else's doing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ralph.errors import BadPlan
from ralph.plan.document import Data, Document
from ralph.plan.entities import Kind, entities, find
from ralph.plan.splice import same

PLAN_FILES = ("features", "tasks", "disciplines", "metadata")


class AgentEdit(msgspec.Struct, frozen=True):
    """One direct edit: the file, and what it took out and put in as far as that is known.

    `new` None: nothing is known. `old` None with `new`: the whole file was written.
    """

    path: str
    old: str | None = None
    new: str | None = None


# -- from tool calls

_READERS = re.compile(
    r"\s*(?:sudo\s+)?(?:cat|less|more|head|tail|grep|rg|ag|ls|tree|wc|diff|stat|file|echo|cd|pwd|true"
    r"|yq(?!\s+(?:.*\s)?(?:-i|--inplace))|jq|sed(?!\s+(?:.*\s)?(?:-[a-zA-Z]*i|--in-place))|awk|sort"
    r"|find(?!.*\s-(?:delete|exec|execdir|ok)\b)|bat|uniq|cut|test|\[|md5sum|sha256sum|ralph|printf"
    r"|git\s+(?:diff|log|show|status|blame|ls-files|add|commit))(?:\s|$)",
    re.DOTALL,
)
_SEPARATOR = re.compile(r"\|\||&&|[;|\n]")
_REDIRECT = re.compile(r"(?<![0-9&=<-])[12]?>{1,2}(?!>|\s*(?:&|/dev/null))|\btee\b")
_SWEEPING = re.compile(
    r"\bgit\s+(?:-\S+\s+)*(?:checkout|restore|stash|reset|clean|pull|merge|rebase|switch|apply|am|revert"
    r"|cherry-pick)\b|\brm\s+(?:-\w+\s+)*(?:\./?|\*|\.\*)(?:\s|$)"
)


def edits_of_command(command: str) -> list[AgentEdit]:
    """The plan's files that a shell command may have changed; how is not known."""
    if _SWEEPING.search(command):
        return [AgentEdit(_path(kind)) for kind in PLAN_FILES]
    named = [kind for kind in PLAN_FILES if f"{kind}.yaml" in command]
    if not named and ".ralph" in command:
        named = list(PLAN_FILES)
    if not named:
        return []
    only_reads = all(_READERS.match(part) for part in _SEPARATOR.split(command) if part.strip())
    if only_reads and not _REDIRECT.search(command):
        return []
    return [AgentEdit(_path(kind)) for kind in named]


def edits_of_tool(tool: str, given: Mapping[str, Any]) -> list[AgentEdit]:
    """The plan's files that a tool call changed, with the texts where the call holds them."""
    if tool in ("Read", "Glob", "Grep", "LS", "NotebookRead"):
        return []
    command = given.get("command")
    if isinstance(command, list):
        command = " ".join(map(str, command))
    if isinstance(command, str):
        return edits_of_command(command)
    path = str(given.get("file_path") or given.get("path") or "")
    if kind_of(path) is None:
        return []
    if tool == "Write":
        return [AgentEdit(path, None, _text(given.get("content")))]
    edits = given.get("edits") if isinstance(given.get("edits"), list) else [given]
    return [
        AgentEdit(path, _text(edit.get("old_string")), _text(edit.get("new_string")))
        if isinstance(edit, Mapping) and _text(edit.get("old_string")) is not None
        else AgentEdit(path)
        for edit in edits or []
    ]


def kind_of(path: str) -> str | None:
    """Which file of the plan a path is, None for any other file."""
    plain = "/" + path.replace("\\", "/").strip()
    return next((kind for kind in PLAN_FILES if plain.endswith("/" + _path(kind))), None)


def for_file(edits: Iterable[AgentEdit | str], kind: str) -> list[AgentEdit]:
    """The edits of one file; a bare path says that it was edited, not how."""
    told = [edit if isinstance(edit, AgentEdit) else AgentEdit(edit) for edit in edits]
    return [edit for edit in told if kind_of(edit.path) == kind]


def _path(kind: str) -> str:
    return f".ralph/db/{kind}.yaml"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# -- from texts to versions and entries


def landed(
    edits: Sequence[AgentEdit], stretches: Sequence[tuple[str | None, str | None]]
) -> list[list[AgentEdit]]:
    """For each stretch between two versions of the file the edits that may have made it.

    An edit whose text shows where it happened is blamed for nothing else.
    """
    found: list[list[AgentEdit]] = [[] for _ in stretches]
    for edit in edits:
        places = [i for i, stretch in enumerate(stretches) if _shows(edit, *stretch)]
        if not places:  # written over since, or never known
            places = list(range(len(stretches)))
            if edit.old is not None:
                edit = AgentEdit(edit.path)
        for i in places:
            found[i].append(edit)
    return found


def _shows(edit: AgentEdit, before: str | None, after: str | None) -> bool:
    if edit.new is None:
        return False
    if edit.old is None:
        return after == edit.new
    if before is None or after is None or edit.old not in before:
        return False
    return edit.new in after if edit.new.strip() else edit.old not in after


class Blame:
    """Whether a change between two versions of a file was made by these edits."""

    def __init__(
        self, kind: Kind, edits: Sequence[AgentEdit], before: str | None, after: str | None
    ) -> None:
        self._kind = kind
        self._everything = any(edit.new is None for edit in edits)
        self._written: list[Data] = []
        self._touched: set[str] = set()
        for edit in edits:
            if edit.new is None:
                continue
            if edit.old is None:
                self._whole(edit.new)
            else:
                self._part(edit.old, edit.new, before, after)

    def made(self, key: str, field: str | None, value: Any) -> bool:
        """Whether the agent gave this field of this entry this value (None: took it out)."""
        if self._everything or key in self._touched:
            return True
        for data in self._written:
            entry = find(data, self._kind, key)
            if field is None:
                if (entry is None) == (value is None):
                    return True
            elif same((entry or {}).get(field), value):
                return True
        return False

    def _whole(self, text: str) -> None:
        try:
            self._written.append(Document(text, name="").data)
        except BadPlan:
            self._everything = True

    def _part(self, old: str, new: str, before: str | None, after: str | None) -> None:
        found = False
        for text, part in ((before, old), (after, new)):
            if text and part.strip() and part in text:
                keys = _keys_at(self._kind, text, text.find(part), len(part))
                if keys is not None:
                    self._touched |= keys
                    found = True
        if not found:  # changed again since, or the file cannot be read: it may be anything
            self._everything = True


def _keys_at(kind: Kind, text: str, start: int, length: int) -> set[str] | None:
    """The entries that a stretch of the text belongs to."""
    try:
        document = Document(text, name="")
    except BadPlan:
        return None
    first = text.count("\n", 0, start) + 1
    # A stretch that ends with a line break does not reach into the next line.
    last = text.count("\n", 0, max(start, start + length - 1)) + 1
    starts = [(document.place(e.path).line, e.key) for e in entities(document.data, kind)]
    found: set[str] = set()
    for i, (line, key) in enumerate(starts):
        end = starts[i + 1][0] - 1 if i + 1 < len(starts) else text.count("\n") + 1
        if key is not None and line <= last and end >= first:
            found.add(key)
    return found
