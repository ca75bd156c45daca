"""What Gemini CLI's hooks send, as Claude Code would send it. Standard library only."""

from __future__ import annotations

import re
from typing import Any


def hook_input(event: str, given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the input of a hook as Claude Code would send it; None if nothing is to do."""
    if event == "user-prompt-submit":
        # The text added at SessionStart may come before the prompt.
        _, _, prompt = str(given.get("prompt", "")).rpartition("</hook_context>")
        return {**given, "prompt": prompt.strip()}
    return _failure(given) if event == "post-tool-use-failure" else given


def _failure(given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the failure of a Gemini CLI tool; None if it did not fail."""
    response = given.get("tool_response")
    response = response if isinstance(response, dict) else {}
    output = str(response.get("llmContent", ""))
    error = response.get("error")
    if code := re.search(r"^Exit Code: (-?[1-9]\d{0,8})$", output, re.M):
        noise = r"</?untrusted_context>\n?|^Output: |^Process Group PGID: \d+$|^Exit Code: .*$"
        plain = re.sub(noise, "", output, flags=re.M).strip()
        return {**given, "tool_name": "Bash", "error": f"Exit code {code[1]}\n{plain}"}
    if not isinstance(error, dict):
        return None
    return {**given, "error": str(error.get("message", ""))}
