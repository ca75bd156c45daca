"""Count what clients write that this version of Ralph does not know, and say so if it is much.

Clients change their files without notice, and a reader that skips what it does not know would
only keep less and less. So readers count the names of what they meet. The counts of a client's
version are saved once one of its names is unknown, and judged when somebody asks, so that a newer
Ralph judges by what it knows itself.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ralph import disk
from ralph.capture.lines import items, mapping, text_of
from ralph.clients import BY_SOURCE
from ralph.text.tokens import table

_VERSION = 1
_MOST_VERSIONS = 3
_MOST_NAMES = 100
_LONGEST_FILE = 200_000
# Worth telling: this many unknown events, and this share of all.
_NOTABLE = 10
_NOTABLE_SHARE = 0.1
_MOST_SHOWN = 3
_NAME = re.compile(r"[\w.-]{1,60}")
_NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
# Arguments of OpenCode's own tools that change files or run commands.
_OPENCODE_CHANGES = {"patchText", "filePath", "command"}


class _Counts(msgspec.Struct):
    version: int = _VERSION
    # By client, by version, by name.
    clients: dict[str, dict[str, dict[str, int]]] = {}


# -- The names of what a client wrote, part by part.


def codex_names(event: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names in a line of a rollout."""
    kind = text_of(event.get("type"))
    data = mapping(event.get("payload"))
    inner = text_of(data.get("type"))
    if kind not in {"response_item", "event_msg"}:
        yield kind
    elif inner == "item_completed":
        yield f"item_{text_of(mapping(data.get('item')).get('type'))}"
    else:
        yield inner
    if inner in {"function_call", "custom_tool_call"}:
        name = text_of(data.get("name"))
        if "__" not in name and not data.get("namespace"):
            yield f"tool_{name}"


def claude_names(line: Any) -> list[str]:
    """Return the names in a line of Claude Code."""
    names = [text_of(line.type)]
    message = line.message
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return names
    for block in content:
        if not isinstance(block, dict):
            continue
        kind = text_of(block.get("type"))
        names.append(f"block_{kind}")
        if kind == "tool_use":
            name = text_of(block.get("name"))
            if not name.startswith("mcp__"):
                names.append(f"tool_{name}")
    return names


def gemini_names(event: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names in a line of Gemini CLI."""
    if "$set" in event:
        yield "set"
        return
    yield "header" if "projectHash" in event else text_of(event.get("type"))
    for call in items(event.get("toolCalls")):
        yield f"status_{text_of(call.get('status'))}"


def opencode_names(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names in a message of OpenCode."""
    info = mapping(line.get("info"))
    yield f"message_{text_of(info.get('role'))}" if info else "session"
    for part in items(line.get("parts")):
        kind = text_of(part.get("type"))
        yield f"part_{kind}"
        given = mapping(mapping(part.get("state")).get("input"))
        if kind == "tool" and given.keys() & _OPENCODE_CHANGES:
            yield f"tool_{text_of(part.get('tool'))}"


# -- The counts, and what they say.


@cache
def _known(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that are read, and those that are skipped."""
    sections = table(__file__, "known.txt")
    read = sections[source]
    skipped = sections[f"{source} skipped"]
    return frozenset(" ".join(read).split()), frozenset(" ".join(skipped).split())


def drift_text(source: str, version: str, met: Mapping[str, int]) -> str:
    """Return what is worth telling of these counts, or ""."""
    read, skipped = _known(source)
    events = {name: count for name, count in _plain(met).items() if name not in skipped}
    unknown = {name: count for name, count in events.items() if name not in read}
    some = sum(unknown.values())
    every = sum(events.values())
    if some < _NOTABLE or some < _NOTABLE_SHARE * every:
        return ""
    most = sorted(unknown, key=lambda name: -unknown[name])[:_MOST_SHOWN]
    names = ", ".join(name.replace("_", " ", 1) for name in most)
    title = f"{BY_SOURCE[source].title} {version}".rstrip()
    share = round(100 * some / every)
    return f"{title}: {share} % of events unknown to this version of Ralph ({names})"


def add_counts(to: dict[str, int], more: Mapping[str, int]) -> None:
    """Add counts by name; names beyond the limit are left out."""
    for name, count in more.items():
        if name in to or len(to) < _MOST_NAMES:
            to[name] = to.get(name, 0) + count


def short_version(version: str) -> str:
    """Return the first two numbers of a version, which say what a client writes."""
    found = _NUMBERS.match(version)
    return found[0] if found else ""


def save_counts(home: Path, source: str, version: str, met: Mapping[str, int]) -> None:
    """Add to the saved counts, once a name is unknown.

    If two processes save at the same time, the counts of one are lost: the share stays right.
    """
    plain = _plain(met)
    names = set().union(*_known(source))
    file = _file(home)
    if plain.keys() <= names and not disk.exists(file):
        return
    saved = _read(home)
    versions = saved.clients.setdefault(source, {})
    version = short_version(version)
    counts = versions.pop(version, {})
    if plain.keys() <= names and not counts:
        return
    add_counts(counts, plain)
    versions[version] = counts
    for oldest in list(versions)[:-_MOST_VERSIONS]:
        del versions[oldest]
    with contextlib.suppress(OSError):  # the counts are no part of memory
        disk.make_folder(file.parent)
        disk.replace(file, msgspec.json.encode(saved))


def drift_told(home: Path) -> list[str]:
    """Return what is worth telling of all saved counts."""
    texts = [
        drift_text(source, version, counts)
        for source, versions in _read(home).clients.items()
        if source in BY_SOURCE
        for version, counts in versions.items()
    ]
    return [text for text in texts if text]


def _plain(met: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in met.items() if _NAME.fullmatch(name)}


def _file(home: Path) -> Path:
    return home / "cache" / "drift.json"


def _read(home: Path) -> _Counts:
    try:
        saved = msgspec.json.decode(disk.read(_file(home), largest=_LONGEST_FILE), type=_Counts)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Counts()
    return saved if saved.version == _VERSION else _Counts()
