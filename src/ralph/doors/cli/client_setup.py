"""Which files change when Ralph is set up in a client or taken out of it. Reads, writes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ralph.doors.cli import client_places as places
from ralph.doors.cli import codex_settings
from ralph.doors.cli.client_call import Call
from ralph.doors.cli.client_files import Edit, read_text
from ralph.doors.cli.client_settings import (
    with_hooks,
    with_server,
    without_hooks,
    without_server,
)

Agent = Literal["claude", "codex"]


def installing(agent: Agent, root: Path | None, call: Call, *, mcp: bool = True) -> list[Edit]:
    """What sets Ralph up in the project at this root, or for the person where there is none."""
    if agent == "codex":
        file = places.codex_settings(root)
        text = read_text(file, root=root)
        return [Edit(file, text, codex_settings.with_block(text, call, file), root)]
    file = places.claude_settings(root)
    text = read_text(file, root=root)
    edits = [Edit(file, text, with_hooks(text, call, file), root)]
    if mcp and root is not None:
        file = places.claude_servers(root)
        text = read_text(file, root=root)
        edits.append(Edit(file, text, with_server(text, call, file), root))
    return edits


def uninstalling(agent: Agent, root: Path | None) -> list[Edit]:
    """What takes Ralph out of there again."""
    if agent == "codex":
        file = places.codex_settings(root)
        text = read_text(file, root=root)
        if text is None:
            return []
        return [Edit(file, text, codex_settings.without_block(text, file), root)]
    edits = []
    file = places.claude_settings(root)
    if (text := read_text(file, root=root)) is not None:
        edits.append(Edit(file, text, without_hooks(text, file), root))
    file = places.claude_servers(root)
    if root is not None and (text := read_text(file, root=root)) is not None:
        edits.append(Edit(file, text, without_server(text, file), root))
    return edits
