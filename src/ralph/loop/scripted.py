"""An agent without a model: it plays a script, for the demo and for tests.

It prints real `stream-json`, really reads and writes files and runs commands in its folder, and
chooses by its prompt and by the output of its commands. To run it, pass the prompt on standard
input to `python -m ralph.loop.scripted SCRIPT.json`.

    {"runs": [{"when": "regex found in the prompt", "steps": [STEP, ...], "result": "..."}, ...]}

It plays the first run whose `when` matches (a run without `when` always matches). A step is one of

    {"say": "text"}                          {"read": "path"}
    {"bash": "command", "expect": "regex"}   {"write": "path", "content": "text"}
    {"sleep": seconds}                       {"edit": "path", "old": "text", "new": "text"}
    {"mcp": "tool", "args": {...}, "server": "feature-memory", "expect": "regex"}

RALPH_MCP_CONFIG names the config file with the servers for `mcp` steps; the default is its first
server. If the output of a command or tool does not match `expect`, the run ends there. Its result
is then the step's `otherwise`, or the output. In commands, `{{prompt}}`, `{{python}}` and
`{{ralph}}` stand for the prompt, this interpreter and the command that calls Ralph.
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
from typing import IO, Any, cast

from ralph.programs import python

_STEPS = ("bash", "read", "write", "edit", "mcp")


class _ScriptEnd(Exception):
    """Ends the run, with this message as its result."""


class ServerProcess:
    """One MCP server of a config file, started as our child process and called over stdio.

    Raises OSError if it does not start or does not answer.
    """

    def __init__(self, entry: dict[str, Any]) -> None:
        self._number = 0
        self._process = subprocess.Popen(
            [entry["command"], *entry.get("args", ())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **entry.get("env", {})},
        )
        self._stdin = cast(IO[bytes], self._process.stdin)
        self._stdout = cast(IO[bytes], self._process.stdout)
        client = {"name": "scripted", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        try:
            self._ask("initialize", hello)
            self._send({"method": "notifications/initialized"})
        except OSError:
            self.close()
            raise

    def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Call a tool; return the text of its answer, and whether it is an error."""
        try:
            answer = self._ask("tools/call", {"name": tool, "arguments": arguments})
        except OSError:
            return "Connection closed", True
        if "error" in answer:
            return str(answer["error"].get("message", answer["error"])), True
        result = answer["result"]
        texts = [part["text"] for part in result.get("content", ()) if part["type"] == "text"]
        return "\n".join(texts), bool(result.get("isError"))

    def close(self) -> None:
        """End the server as clients do, by closing its input."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()

    def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        for line in self._stdout:
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._number and "method" not in answer:
                return answer
        raise ConnectionResetError

    def _send(self, message: dict[str, Any]) -> None:
        self._stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._stdin.flush()


class ScriptedAgent:
    """One run of one script in the current folder."""

    def __init__(self, script: dict[str, Any], prompt: str) -> None:
        self._prompt = prompt
        none = {"result": "The script has no run for this prompt."}
        fitting = (run for run in script["runs"] if re.search(run.get("when", ""), prompt))
        self._run: dict[str, Any] = next(fitting, none)
        self._session = str(uuid.uuid4())
        self._turns = 0
        self._entries: dict[str, Any] = {}
        if config := os.environ.get("RALPH_MCP_CONFIG"):
            self._entries = json.loads(Path(config).read_text(encoding="utf-8"))["mcpServers"]
        self._servers: dict[str, ServerProcess] = {}

    def play(self) -> int:
        """Play the run to its end; return the exit code of the real client."""
        started = time.monotonic()
        try:
            begin: dict[str, Any] = {"subtype": "init", "cwd": str(Path.cwd()), "model": "scripted"}
            begin |= {"tools": ["Bash", "Read", "Write", "Edit"], "permissionMode": "acceptEdits"}
            self._emit("system", **begin, mcp_servers=self._connected())
            result = self._play()
        finally:
            for server in self._servers.values():
                server.close()
        usage = {"input_tokens": len(self._prompt) // 4, "output_tokens": self._turns * 50}
        end: dict[str, Any] = {"subtype": "success", "is_error": False, "result": result}
        end |= {"num_turns": self._turns, "usage": usage, "permission_denials": []}
        end["duration_ms"] = int((time.monotonic() - started) * 1000)
        self._emit("result", **end, total_cost_usd=float(self._run.get("cost_usd", 0.0)))
        return 0

    def _play(self) -> str:
        try:
            for step in self._run.get("steps", []):
                if "say" in step:
                    self._speak({"type": "text", "text": step["say"]})
                elif "sleep" in step:
                    time.sleep(float(step["sleep"]))
                else:
                    kind = next(kind for kind in _STEPS if kind in step)
                    getattr(self, f"_{kind}")(step)
        except _ScriptEnd as stopped:
            return str(stopped)
        return str(self._run.get("result", ""))

    def _read(self, step: dict[str, Any]) -> None:
        use = self._call("Read", file_path=_whole(step["read"]))
        try:
            text = Path(step["read"]).read_text(encoding="utf-8")
        except OSError:
            self._answer(use, "File does not exist.", failed=True)
        else:
            self._answer(use, text, {"file": {"content": text}})

    def _write(self, step: dict[str, Any]) -> None:
        path = Path(step["write"])
        file = _whole(step["write"])
        kind = "update" if path.exists() else "create"
        use = self._call("Write", file_path=file, content=step["content"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(step["content"], encoding="utf-8")
        self._answer(use, f"File {kind}d", {"type": kind, "filePath": file})

    def _edit(self, step: dict[str, Any]) -> None:
        path = Path(step["edit"])
        file = _whole(step["edit"])
        old = step["old"]
        new = step["new"]
        use = self._call("Edit", file_path=file, old_string=old, new_string=new)
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if old not in text:
            self._answer(use, "String to replace not found in file.", failed=True)
            return
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        self._answer(use, "File edited", {"filePath": file})

    def _bash(self, step: dict[str, Any]) -> None:
        words = {"python": [sys.executable], "ralph": [*python(), "-m", "ralph"]}
        command = step["bash"]
        for name, value in (words | {"prompt": [self._prompt]}).items():
            command = command.replace(f"{{{{{name}}}}}", shlex.join(value))
        use = self._call("Bash", command=command)
        texts: dict[str, Any] = {"capture_output": True, "encoding": "utf-8", "errors": "replace"}
        done = subprocess.run(command, shell=True, timeout=60, check=False, **texts)
        output = (done.stdout + done.stderr).strip()
        text = output if done.returncode == 0 else f"Exit code {done.returncode}\n{output}"
        detail = {"stdout": done.stdout, "stderr": done.stderr, "interrupted": False}
        self._answer(use, text, detail, failed=done.returncode != 0)
        _expect(step, output)

    def _mcp(self, step: dict[str, Any]) -> None:
        server = self._server_of(step)
        tool = step["mcp"]
        given = step.get("args", {})
        name = f"mcp__{server}__{tool}"
        use = self._call(name, **given)
        text = f"No such tool available: {name}"
        failed = True
        if server in self._servers:
            text, failed = self._servers[server].call(tool, given)
        self._answer(use, text, failed=failed)
        _expect(step, text)

    def _server_of(self, step: dict[str, Any]) -> str:
        return str(step.get("server") or next(iter(self._entries), ""))

    def _connected(self) -> list[dict[str, str]]:
        """Start the servers that the run will call; return each with its status."""
        asked = [self._server_of(step) for step in self._run.get("steps", []) if "mcp" in step]
        statuses = dict.fromkeys(asked, "failed")
        for name in statuses.keys() & self._entries.keys():
            with contextlib.suppress(OSError):
                self._servers[name] = ServerProcess(self._entries[name])
                statuses[name] = "connected"
        return [{"name": name, "status": status} for name, status in statuses.items()]

    def _call(self, tool: str, /, **given: Any) -> str:
        """Announce a tool call, as the real client does; return its id."""
        use = f"toolu_{uuid.uuid4().hex[:16]}"
        self._speak({"type": "tool_use", "id": use, "name": tool, "input": given})
        return use

    def _answer(self, use: str, text: str, detail: Any = None, *, failed: bool = False) -> None:
        block = {"type": "tool_result", "tool_use_id": use, "content": text, "is_error": failed}
        message = {"role": "user", "content": [block]}
        self._emit("user", message=message, tool_use_result=detail or text, parent_tool_use_id=None)

    def _speak(self, block: dict[str, Any]) -> None:
        self._turns += 1
        identity = f"msg_{uuid.uuid4().hex[:16]}"
        message = {"id": identity, "role": "assistant", "model": "scripted", "content": [block]}
        self._emit("assistant", message=message, parent_tool_use_id=None)

    def _emit(self, kind: str, **event: Any) -> None:
        sys.stdout.write(json.dumps({"type": kind, **event, "session_id": self._session}) + "\n")
        sys.stdout.flush()


def _expect(step: dict[str, Any], output: str) -> None:
    expected = step.get("expect")
    if expected is not None and not re.search(expected, output):
        raise _ScriptEnd(step.get("otherwise", output))


def _whole(path: str) -> str:
    return str(Path.cwd() / path)


def main(arguments: list[str]) -> int:
    """Play the script named on the command line."""
    script = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    return ScriptedAgent(script, sys.stdin.buffer.read().decode("utf-8", "replace")).play()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
