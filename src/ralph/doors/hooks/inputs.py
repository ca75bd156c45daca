"""What other clients give their hooks, as Claude Code would have said it.

Only the standard library: this is loaded before anything is known to be worth more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

HookInput = dict[str, Any]

_EXIT = re.compile(r"^Exit Code: (-?[1-9]\d{0,8})$", re.M)
_GEMINI_NOISE = re.compile(r"</?untrusted_context>\n?|^Output: |^Process Group PGID: \d+$", re.M)


def as_claude(agent: str, event: str, given: HookInput) -> HookInput | None:
    """The input of an event, None where there is nothing to do."""
    read = _CLIENTS.get(agent)
    return None if read is None else read(event, given)


def _gemini(event: str, given: HookInput) -> HookInput | None:
    """Gemini CLI: what SessionStart told may stand before a prompt; a tool tells how it ended."""
    if event == "user-prompt-submit":
        _, _, prompt = str(given.get("prompt", "")).rpartition("</hook_context>")
        return {**given, "prompt": prompt.strip()}
    if event != "post-tool-use-failure":
        return given
    response = given.get("tool_response")
    response = response if isinstance(response, dict) else {}
    output = str(response.get("llmContent", ""))
    code = _EXIT.search(output)
    if code:
        plain = _EXIT.sub("", _GEMINI_NOISE.sub("", output)).strip()
        return {**given, "tool_name": "Bash", "error": f"Exit code {code[1]}\n{plain}"}
    error = response.get("error")
    if not isinstance(error, dict):
        return None
    return {**given, "error": str(error.get("message", ""))}


def _codex(event: str, given: HookInput) -> HookInput | None:
    """Codex: as Claude Code; a path may be null."""
    return {name: value for name, value in given.items() if value is not None}


def _opencode(event: str, given: HookInput) -> HookInput | None:
    """OpenCode: our own plugin says it as Claude Code does; its ids look like secrets."""
    from ralph.clients.opencode_sessions import plain_id

    lines = given.get("messages")
    named = {"session_id": plain_id(str(given.get("session_id", "")))}
    return {**given, **named, "lines": lines if isinstance(lines, list) else []}


_CLIENTS: dict[str, Callable[[str, HookInput], HookInput | None]] = {
    "gemini": _gemini,
    "codex": _codex,
    "opencode": _opencode,
}
