"""A git repository with sessions that changed its files, for tests of what still stands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from importing import answered, asked, import_sessions, write

from ralph.memory.ralph import Ralph, open_ralph
from ralph.recall import Standing
from ralph.records.conversation import conversation_id

# Sessions are held on this day, the first commit is older.
DAY = 2


def body(name: str, lines: int = 10) -> str:
    """The text of a function with so many lines, none of which another name has."""
    steps = "".join(f"    {name}_step_{n} = compute_{name}({n})\n" for n in range(lines - 1))
    return f"def {name}(request):\n{steps}"


class CodeHistory:
    """A repository, its sessions, and the memory of both."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = root
        self.home = home
        self._sessions = root.parent / f"sessions of {root.name}"
        root.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")
        self.write("README.md", "The first file of the project.\n")
        self.commit("Begin", day=DAY - 1)

    def git(self, *words: str, day: int = DAY) -> str:
        """Git as nobody's settings can change it, on a day of November."""
        at = f"2026-11-{day:02}T12:00:00Z"
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.root)}
        environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        for role in ("AUTHOR", "COMMITTER"):
            environ |= {f"GIT_{role}_NAME": "Test", f"GIT_{role}_EMAIL": "test@example.com"}
            environ[f"GIT_{role}_DATE"] = at
        done = subprocess.run(
            ["git", *words], cwd=self.root, env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        """Write a file of the project."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def commit(self, message: str, *, day: int = DAY) -> str:
        """Commit everything; return the short id."""
        self.git("add", "-A", day=day)
        self.git("commit", "-q", "--allow-empty", "-m", message, day=day)
        return self.git("rev-parse", "--short", "HEAD")

    def session(self, name: str, *calls: dict[str, Any], branch: str = "main", **said: str) -> str:
        """Import a session with these tool calls; return the id of its exchange."""
        about = {"gitBranch": branch}
        lines = [asked(name, 1, said.get("question", f"Work on {name}"), str(self.root), **about)]
        for number, call in enumerate(calls):
            result = call.get("result", {})
            lines += _called(name, number, call, self.root, result)
        lines.append(answered(name, 59, said.get("answer", f"{name} is done."), str(self.root)))
        write(self._sessions / name / f"{name}.jsonl", lines)
        with self.open() as ralph:
            import_sessions("claude-code", ralph.conversations, folder=self._sessions / name)
            history = ralph.conversations.stream.history
            return history.exchanges[conversation_id("claude-code", name)][0]

    def open(self) -> Ralph:
        """The memory of the project."""
        return open_ralph(self.root, home=self.home)

    def standing(self, record: str) -> Standing | None:
        """How the code of a record stands now."""
        with self.open() as ralph:
            return ralph.get(record).standing

    # Tool calls.

    def edit(self, path: str, old: str, new: str) -> dict[str, Any]:
        """An edit of a file, which is made."""
        file = self.root / path
        file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        fields = {"file_path": str(file), "old_string": old, "new_string": new}
        return {"name": "Edit", "input": fields}

    def create(self, path: str, text: str) -> dict[str, Any]:
        """A file that is written as a whole."""
        self.write(path, text)
        return {"name": "Write", "input": {"file_path": str(self.root / path), "content": text}}

    def agent(self, session: str, agent: str, *calls: dict[str, Any], beside: bool = False) -> Any:
        """A sub-agent with these tool calls, which a session starts; its file is written.

        `beside`: it runs while the main agent goes on.
        """
        task = f"Work as {agent}"
        first = asked(session, 1, task, str(self.root), isSidechain=True, agentId=agent)
        lines = [first]
        for number, call in enumerate(calls):
            made = _called(f"{session}-{agent}", number, call, self.root)
            lines += [line | {"isSidechain": True, "agentId": agent} for line in made]
        folder = self._sessions / session / session / "subagents"
        write(folder / f"agent-{agent}.jsonl", lines)
        status = (
            {"status": "async_launched", "isAsync": True} if beside else {"status": "completed"}
        )
        return {
            "name": "Agent",
            "input": {"prompt": task, "subagent_type": "general-purpose"},
            "result": {"agentId": agent, "prompt": task, **status},
        }


def _called(
    session: str, number: int, call: dict[str, Any], cwd: Path, detail: Any = None
) -> list[dict[str, Any]]:
    identity = f"{session}-call-{number}"
    when = f"2026-11-{DAY:02}T10:00:{2 + number:02}.000Z"
    base = {"sessionId": session, "timestamp": when, "cwd": str(cwd), "isSidechain": False}
    use = {"type": "tool_use", "id": identity, "name": call["name"], "input": call["input"]}
    result = {"type": "tool_result", "tool_use_id": identity, "content": "The file was updated."}
    return [
        {
            **base,
            "type": "assistant",
            "uuid": f"{identity}-a",
            "message": {"role": "assistant", "model": "m", "content": [use]},
        },
        {
            **base,
            "type": "user",
            "uuid": f"{identity}-u",
            **({"toolUseResult": detail} if detail else {}),
            "message": {"role": "user", "content": [result]},
        },
    ]
