"""An agent without a model: it plays a script, for the demo and for tests.

It speaks real `stream-json`, really reads, writes and runs things in its folder, and decides by
what its prompt and its commands tell it. `python -m ralph.loop.scripted SCRIPT.json`, the prompt
on standard input.

    {"runs": [{"when": "regex found in the prompt", "steps": [STEP, ...], "result": "..."}, ...]}

The first run whose `when` fits is played (one without `when` always fits). A step is one of

    {"say": "text"}                          {"read": "path"}
    {"bash": "command", "expect": "regex"}   {"write": "path", "content": "text"}
    {"sleep": seconds}                       {"edit": "path", "old": "text", "new": "text"}
    {"mcp": "tool", "args": {...}, "server": "feature-memory", "expect": "regex"}

The servers of `mcp` steps are those of the file that RALPH_MCP_CONFIG names, by default its first.
A command or tool whose output lacks what its step expects ends the run there with `otherwise`, or
with the output. `{{prompt}}`, `{{python}}` and `{{ralph}}` in commands stand for the prompt, this
interpreter and the command that calls Ralph.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from ralph.loop.braindump import Gone, ServerProcess, entries
from ralph.programs import python

_BASH_TIMEOUT_S = 60


class _ScriptEnd(Exception):
    """The run ends here, with this as its last word."""


class ScriptedAgent:
    """One run of one script in the current folder."""

    def __init__(self, script: dict[str, Any], prompt: str) -> None:
        self._prompt = prompt
        self._run = _chosen(script, prompt)
        self._session = str(uuid.uuid4())
        self._started = time.monotonic()
        self._turns = 0
        self._entries = entries(os.environ.get("RALPH_MCP_CONFIG"))
        self._servers: dict[str, ServerProcess] = {}

    def play(self) -> int:
        """Play the run to its end; the exit code is the real client's."""
        try:
            return self._play()
        finally:
            for server in self._servers.values():
                server.close()

    def _play(self) -> int:
        self._emit(
            {
                "type": "system",
                "subtype": "init",
                "cwd": str(Path.cwd()),
                "session_id": self._session,
                "tools": ["Bash", "Read", "Write", "Edit"],
                "mcp_servers": self._connected(),
                "model": "scripted",
                "permissionMode": "acceptEdits",
            }
        )
        result = str(self._run.get("result", ""))
        try:
            for step in self._run.get("steps", []):
                self._step(step)
        except _ScriptEnd as stopped:
            result = str(stopped)
        self._emit(
            {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "result": result,
                "num_turns": self._turns,
                "session_id": self._session,
                "duration_ms": int((time.monotonic() - self._started) * 1000),
                "total_cost_usd": float(self._run.get("cost_usd", 0.0)),
                "usage": {
                    "input_tokens": len(self._prompt) // 4,
                    "output_tokens": self._turns * 50,
                },
                "permission_denials": [],
            }
        )
        return 0

    def _step(self, step: dict[str, Any]) -> None:
        if "say" in step:
            self._speak({"type": "text", "text": step["say"]})
        elif "sleep" in step:
            time.sleep(float(step["sleep"]))
        elif "bash" in step:
            self._bash(step)
        elif "read" in step:
            self._read(step)
        elif "write" in step:
            self._write(step)
        elif "edit" in step:
            self._edit(step)
        elif "mcp" in step:
            self._mcp(step)

    def _read(self, step: dict[str, Any]) -> None:
        use = self._call("Read", {"file_path": _whole(step["read"])})
        try:
            text = Path(step["read"]).read_text(encoding="utf-8")
        except OSError:
            self._answer(use, "File does not exist.", "File does not exist.", is_error=True)
        else:
            self._answer(use, text, {"file": {"content": text}})

    def _write(self, step: dict[str, Any]) -> None:
        path = Path(step["write"])
        kind = "update" if path.exists() else "create"
        given = {"file_path": _whole(step["write"]), "content": step["content"]}
        use = self._call("Write", given)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step["content"], encoding="utf-8")
        self._answer(use, f"File {kind}d", {"type": kind, "filePath": given["file_path"]})

    def _edit(self, step: dict[str, Any]) -> None:
        path = Path(step["edit"])
        given = {
            "file_path": _whole(step["edit"]),
            "old_string": step["old"],
            "new_string": step["new"],
        }
        use = self._call("Edit", given)
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if step["old"] not in text:
            problem = "String to replace not found in file."
            self._answer(use, problem, problem, is_error=True)
            return
        path.write_text(text.replace(step["old"], step["new"], 1), encoding="utf-8")
        self._answer(use, "File edited", {"filePath": given["file_path"]})

    def _bash(self, step: dict[str, Any]) -> None:
        command = self._filled(step["bash"])
        use = self._call("Bash", {"command": command})
        done = subprocess.run(
            command,
            shell=True,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_BASH_TIMEOUT_S,
            check=False,
        )
        output = (done.stdout + done.stderr).strip()
        told = {"stdout": done.stdout, "stderr": done.stderr, "interrupted": False}
        text = output if done.returncode == 0 else f"Exit code {done.returncode}\n{output}"
        self._answer(use, text, told, is_error=done.returncode != 0)
        _expect(step, output)

    def _mcp(self, step: dict[str, Any]) -> None:
        server, tool, given = self._server_of(step), step["mcp"], step.get("args", {})
        use = self._call(f"mcp__{server}__{tool}", given)
        if server in self._servers:
            text, failed = self._servers[server].call(tool, given)
        else:
            text, failed = f"No such tool available: mcp__{server}__{tool}", True
        self._answer(use, text, text, is_error=failed)
        _expect(step, text)

    def _server_of(self, step: dict[str, Any]) -> str:
        return str(step.get("server") or next(iter(self._entries), ""))

    def _connected(self) -> list[dict[str, str]]:
        """The servers that the run will ask, started, each with how that went."""
        told = []
        asked = [self._server_of(step) for step in self._run.get("steps", []) if "mcp" in step]
        for name in dict.fromkeys(asked):
            if name in self._entries:
                with contextlib.suppress(Gone):
                    self._servers[name] = ServerProcess(self._entries[name])
            status = "connected" if name in self._servers else "failed"
            told.append({"name": name, "status": status})
        return told

    def _filled(self, command: str) -> str:
        return (
            command.replace("{{python}}", shlex.quote(sys.executable))
            .replace("{{ralph}}", shlex.join([*python(), "-m", "ralph"]))
            .replace("{{prompt}}", shlex.quote(self._prompt))
        )

    def _call(self, name: str, given: dict[str, Any]) -> str:
        """Say which tool is about to be used, as the real client does."""
        use = f"toolu_{uuid.uuid4().hex[:16]}"
        self._speak({"type": "tool_use", "id": use, "name": name, "input": given})
        return use

    def _answer(self, use: str, text: str, told: Any, *, is_error: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": use, "content": text, "is_error": is_error}
        self._emit(
            {
                "type": "user",
                "message": {"role": "user", "content": [block]},
                "tool_use_result": told,
                "session_id": self._session,
                "parent_tool_use_id": None,
            }
        )

    def _speak(self, block: dict[str, Any]) -> None:
        self._turns += 1
        self._emit(
            {
                "type": "assistant",
                "message": {
                    "id": f"msg_{uuid.uuid4().hex[:16]}",
                    "role": "assistant",
                    "model": "scripted",
                    "content": [block],
                },
                "parent_tool_use_id": None,
                "session_id": self._session,
            }
        )

    def _emit(self, event: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


def _chosen(script: dict[str, Any], prompt: str) -> dict[str, Any]:
    for run in script["runs"]:
        if re.search(run.get("when", ""), prompt):
            chosen: dict[str, Any] = run
            return chosen
    return {"result": "The script has no run for this prompt."}


def _expect(step: dict[str, Any], output: str) -> None:
    expected = step.get("expect")
    if expected is not None and not re.search(expected, output):
        raise _ScriptEnd(step.get("otherwise", output))


def _whole(path: str) -> str:
    return str(Path.cwd() / path)


def main(arguments: list[str]) -> int:
    """Play the script named on the command line."""
    script = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    return ScriptedAgent(script, prompt).play()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
