"""Reads a Markdown checklist as a plan.

    # Authentication                    a heading is a feature (its name: `authentication`)
    Users log in with e-mail.           text under it is the description
    ## Architecture                     Description, Architecture, Boundaries: prose of the feature
    ## Dependencies                     its list items are dependencies
    ## Tasks                            more tasks of the same feature
    - [ ] Build the login form          a task
      - shows an error for a bad mail   a nested item without a box: an acceptance criterion
      - [ ] Validate the address        a nested item with a box: a task that comes first
    - [x] Choose a framework            done
    - [ ] Write docs (discipline: docs) (priority: 1)

Any other heading begins another feature. A heading without a task and without a section of its
own is only a title. Fenced code is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HEADING = re.compile(r"(#{1,6})\s+(?:feature\s*:\s*)?(.+?)\s*#*$", re.IGNORECASE)
_ITEM = re.compile(r"([ \t]*)(?:[-*+]|\d+[.)])\s+(?:\[([ xX~/-])\]\s+)?(.+)$")
_EMPTY_BOX = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+\[[ xX~/-]?\]\s*")
_OPTION = re.compile(r"\s*\((discipline|priority|tags)\s*:\s*([^()]*)\)", re.IGNORECASE)
_FENCE = re.compile(r"\s*(?:```|~~~)")
_PROSE = {
    "description": "description",
    "overview": "description",
    "architecture": "architecture",
    "design": "architecture",
    "boundaries": "boundaries",
    "out of scope": "boundaries",
    "scope": "boundaries",
}
_STATUS = {" ": "pending", "x": "done", "X": "done", "~": "in_progress", "/": "in_progress",
           "-": "skipped"}  # fmt: skip


@dataclass
class ListedTask:
    """A box and what stands under it."""

    title: str
    status: str = "pending"
    discipline: str | None = None
    priority: str | None = None
    tags: list[str] = field(default_factory=list)
    criteria: list[str] = field(default_factory=list)
    first: list[ListedTask] = field(default_factory=list)


@dataclass
class ListedFeature:
    """A heading and what stands under it."""

    title: str
    prose: dict[str, str] = field(default_factory=dict)
    dependencies: list[str] = field(default_factory=list)
    tasks: list[ListedTask] = field(default_factory=list)
    has_section: bool = False


def read_checklist(text: str) -> list[ListedFeature]:
    """The features of a checklist in order; tasks before any heading have an empty title."""
    return _Checklist().read(text)


def slug(title: str) -> str:
    """A feature's name from its title."""
    plain = re.sub(r"[`*_\[\]]", "", title).strip().lower()
    return re.sub(r"[^\w.]+", "-", plain).strip("-.")[:100]


class _Checklist:
    def __init__(self) -> None:
        self._features: list[ListedFeature] = [ListedFeature("")]
        self._section = "description"
        self._open: list[tuple[int, ListedTask]] = []
        self._in_code = False

    def read(self, text: str) -> list[ListedFeature]:
        for line in text.splitlines():
            if _FENCE.match(line):
                self._in_code = not self._in_code
                continue
            if self._in_code:
                continue
            if heading := _HEADING.match(line):
                self._heading(heading.group(2))
            elif _EMPTY_BOX.fullmatch(line):
                continue
            elif item := _ITEM.match(line):
                indent = len(item.group(1).expandtabs(4))
                self._item(indent, item.group(2), item.group(3).strip())
            elif line.strip():
                self._text(line)
            else:
                self._prose("")
        found = [f for f in self._features if f.tasks or f.has_section]
        for feature in found:
            feature.prose = {k: v.strip() for k, v in feature.prose.items() if v.strip()}
        return found

    def _heading(self, title: str) -> None:
        self._open.clear()
        name = title.strip().lower().rstrip(":")
        now = self._features[-1]
        if name in _PROSE or name in ("tasks", "dependencies", "todo", "to do"):
            self._section = _PROSE.get(name, name)
            now.has_section |= bool(now.title)
        else:
            self._features.append(ListedFeature(re.sub(r"[`*]", "", title).strip()))
            self._section = "description"

    def _item(self, indent: int, box: str | None, text: str) -> None:
        while self._open and indent <= self._open[-1][0]:
            self._open.pop()
        parent = self._open[-1][1] if self._open else None
        if box is not None:
            task = _task(text, box)
            (parent.first if parent else self._features[-1].tasks).append(task)
            self._open.append((indent, task))
        elif parent is not None:
            parent.criteria.append(text)
        elif self._section == "dependencies":
            self._features[-1].dependencies.append(text)
        else:
            self._prose(f"- {text}")

    def _text(self, line: str) -> None:
        if self._open and line[0].isspace():
            _, task = self._open[-1]
            if task.criteria:
                task.criteria[-1] += " " + line.strip()
            else:
                task.title += " " + line.strip()
            return
        self._open.clear()
        self._prose(line.strip())

    def _prose(self, line: str) -> None:
        feature = self._features[-1]
        section = self._section if self._section in _PROSE.values() else None
        if section and (line or section in feature.prose):
            feature.prose[section] = feature.prose.get(section, "") + line + "\n"


def _task(text: str, box: str) -> ListedTask:
    task = ListedTask("", _STATUS[box])
    for key, value in _OPTION.findall(text):
        if key.lower() == "discipline":
            task.discipline = value.strip()
        elif key.lower() == "priority":
            task.priority = value.strip()
        else:
            task.tags += [tag.strip() for tag in value.split(",") if tag.strip()]
    task.title = _OPTION.sub("", text).strip()
    return task
