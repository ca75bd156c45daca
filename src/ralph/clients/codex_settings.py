"""Ralph's part in Codex's `config.toml`: one block between two comments, the rest untouched."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from ralph.clients.setup import (
    SERVER,
    RalphCall,
    SettingsEdit,
    SetupPart,
    SetupPlace,
    foreign_server,
    read_text,
    server_call,
    server_part,
    setup_part,
)
from ralph.errors import BadInput

HAS_HOOKS: bool = False
FILLS_VARIABLES: bool = False
_BEGIN = "# >>> ralph: made by `ralph hooks install --agent codex`, removed by `uninstall` >>>"
_END = "# <<< ralph <<<"
_BLOCK = re.compile(
    rf"(?:\r?\n)?^{re.escape(_BEGIN)}[^\n]*\n.*?^{re.escape(_END)}[^\n]*(?:\n|\Z)", re.S | re.M
)
# `codex mcp remove` takes the table and the comment before it, and leaves the one after it.
_LONE_END = re.compile(rf"^{re.escape(_END)}[^\n]*(?:\n|\Z)", re.M)


def settings_file(root: Path | None) -> Path:
    """Codex's settings: of the project at this root, else the person's own."""
    if root is not None:
        return root / ".codex" / "config.toml"
    given = os.environ.get("CODEX_HOME")
    return (Path(given).expanduser() if given else Path.home() / ".codex") / "config.toml"


def install_edits(root: Path | None, call: RalphCall, *, mcp: bool) -> list[SettingsEdit]:
    """What sets Ralph up; the server is all there is."""
    file = settings_file(root)
    text = read_text(file, root=root)
    return [SettingsEdit(file, text, with_block(text, call, file), root)]


def uninstall_edits(root: Path | None) -> list[SettingsEdit]:
    """What takes Ralph out again."""
    file = settings_file(root)
    text = read_text(file, root=root)
    return [] if text is None else [SettingsEdit(file, text, without_block(text, file), root)]


def places(root: Path | None) -> list[SetupPlace]:
    """The server for the person, and for the project at this root."""
    found = [SetupPlace("codex", "user", None, _server_part(None))]
    if root is not None:
        found.append(SetupPlace("codex", "project", None, _server_part(root)))
    return found


def _server_part(root: Path | None) -> SetupPart:
    def judge(text: str, file: Path, root: Path | None) -> SetupPart:
        return server_part(file, server_in(text, file), root)

    return setup_part(settings_file(root), root, judge)


def warnings(places: list[SetupPlace], root: Path | None) -> list[str]:
    """Nothing is special."""
    return []


def registered() -> RalphCall | None:
    """None: Codex's servers stand in its settings, which we write."""
    return None


def register(call: RalphCall) -> str | None:
    """Nothing to do."""
    return None


def unregister() -> str | None:
    """Nothing to do."""
    return None


def with_block(text: str | None, call: RalphCall, where: Path) -> str:
    """The settings with our server in them."""
    rest = text
    if text is not None:
        known = server_in(text, where)
        if known == call:
            return text
        rest = without_block(text, where)
        if rest is not None and SERVER in _servers(_parsed(rest, where)):
            raise foreign_server(where)
    newline = "\r\n" if "\r\n" in (rest or "") else "\n"
    lines = [
        _BEGIN,
        f"[mcp_servers.{SERVER}]",
        f"command = {json.dumps(call.program, ensure_ascii=False)}",
        f"args = {json.dumps(call.server_words, ensure_ascii=False)}",
        # Without it `codex exec` refuses every tool that writes, even reporting on a task.
        'default_tools_approval_mode = "approve"',
        _END,
        "",
    ]
    block = newline.join(lines)
    # One line break goes before the block, whatever is there: taking both out is exact.
    made = block if rest is None else rest + newline + block
    if not _fits(made, call):
        raise BadInput(
            "no table can be added to mcp_servers as it is written there",
            where=str(where),
            todo="Write it as tables ([mcp_servers.NAME]), then run this again. Nothing changed.",
        )
    return made


def without_block(text: str, where: Path) -> str | None:
    """The settings without our server; None when nothing else was in them."""
    _parsed(text, where)
    found = _BLOCK.search(text)
    if found is None:
        if _BEGIN in text:
            line = text.count("\n", 0, text.index(_BEGIN)) + 1
            raise BadInput(
                f"the line {_END!r} that ends Ralph's block is missing",
                where=f"{where}:{line}",
                todo="Put it after the block, or take the block out. Nothing was changed.",
            )
        return _LONE_END.sub("", text)
    left = text[: found.start()] + text[found.end() :]
    return None if not left and text.startswith(_BEGIN) else left


def server_in(text: str, where: Path) -> RalphCall | None:
    """How our server is called, None where it is not registered."""
    return server_call(_servers(_parsed(text, where)).get(SERVER))


def _servers(settings: dict[str, Any]) -> dict[str, Any]:
    servers = settings.get("mcp_servers")
    return servers if isinstance(servers, dict) else {}


def _parsed(text: str, where: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1  # "at end of document"
        raise BadInput(
            f"this is not valid TOML: {error}",
            where=f"{where}:{line}",
            todo="Fix it and run this again. Nothing was changed.",
        ) from None


def _fits(text: str, call: RalphCall) -> bool:
    try:
        return server_call(_servers(tomllib.loads(text)).get(SERVER)) == call
    except tomllib.TOMLDecodeError:
        return False
