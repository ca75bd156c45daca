"""What the tests of the hooks share: a hook as the client calls it, and a session's transcript."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import places
from measuring import measured

from ralph import disk
from ralph.memory.ralph import open_ralph
from ralph.records.conversation import Exchange
from ralph.records.iteration import Iteration
from ralph.state_folders import hooks_folder

if TYPE_CHECKING:
    from forking import ForkServer

FIXTURES = places.FIXTURES / "claude_code"


class Hooked(NamedTuple):
    """How a hook ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> dict[str, str]:
        """The part of its answer that is for the model."""
        answer = json.loads(self.out)
        assert set(answer) <= {"hookSpecificOutput", "systemMessage"}
        told: dict[str, str] = answer.get("hookSpecificOutput", {"additionalContext": ""})
        return told

    @property
    def message(self) -> str:
        """The line for the person, "" when there is none."""
        return str(json.loads(self.out).get("systemMessage", "")) if self.out else ""

    @property
    def context(self) -> str:
        """The text for the model, "" when it said nothing."""
        return self.said["additionalContext"] if self.out else ""


def hook(
    event: str,
    given: Mapping[str, Any] | bytes,
    *,
    cwd: Path,
    environ: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    python: Sequence[str] = (),
) -> Hooked:
    """A hook as a process of its own; it ends with 0 and says nothing on stderr, whatever happens.

    It runs elsewhere than in the project: only its input says where that is.
    """
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    around = _environ(environ) | ({} if python else measured())
    words = ["hook", *event.split()]
    if not prefix and not python and _can_be_forked(environ or {}, around):
        hooked = _forked(words, data, cwd, around)
    else:
        ran = subprocess.run(
            [*prefix, sys.executable, *python, "-m", "ralph", *words],
            input=data,
            capture_output=True,
            cwd=cwd,
            env=around,
            timeout=60,
            check=False,
        )
        hooked = Hooked(ran.returncode, ran.stdout.decode(), ran.stderr.decode())
    if not python:
        assert (hooked.code, hooked.err) == (0, ""), hooked
    return hooked


def _can_be_forked(asked: Mapping[str, str], around: Mapping[str, str]) -> bool:
    """Whether a fork of a process that has loaded Ralph does as well as one that loads it anew.

    Where coverage is measured, every hook is started as the client does it.
    """
    for_python = any(name.startswith("PYTHON") for name in asked)
    return sys.platform != "win32" and not for_python and "COVERAGE_PROCESS_START" not in around


def _forked(words: Sequence[str], data: bytes, cwd: Path, environ: Mapping[str, str]) -> Hooked:
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile(dir=cwd)) for _ in range(3)]
        files[0].write(data)
        files[0].seek(0)
        given, out, err = (file.fileno() for file in files)
        server = _fork_server()
        pid = server.start(words, cwd=cwd, environ=environ, streams=(given, out, err))
        end = server.wait(pid, timeout_s=45)
        said = []
        for file in files[1:]:
            file.seek(0)
            said.append(file.read().decode())
    return Hooked(end.code, *said)


@functools.cache
def _fork_server() -> ForkServer:
    from forking import ForkServer  # not there on Windows

    server = ForkServer()
    atexit.register(server.close)
    return server


# Hooks start no worker, which would outlive them.
NO_WORKER = {
    "RALPH_SUMMARIZER_CONVERSATION_ENABLED": "false",
    "RALPH_SUMMARIZER_EXCHANGE_ENABLED": "false",
}


def roomy() -> dict[str, str]:
    """Limits that a hook keeps on a busy machine, too; no worker outlives the test."""
    return {"RALPH_HOOK_TIMEOUT_S": "30", **NO_WORKER}


def _environ(more: Mapping[str, str] | None) -> dict[str, str]:
    # The tests themselves may run inside a session of the client.
    own = {k: v for k, v in os.environ.items() if k != "CLAUDE_PROJECT_DIR"}
    return roomy() | own | dict(more or {})


class Session:
    """A session of the client in a project: its transcript, and the hooks it calls."""

    def __init__(self, project: Path, folder: Path, *, began: str = "2026-11-02T10:00:00Z") -> None:
        self.name = str(uuid.uuid4())
        self.project = project
        self.folder = folder
        self.transcript = folder / f"{self.name}.jsonl"
        self._clock = datetime.fromisoformat(began)

    def hook(
        self, event: str, /, environ: Mapping[str, str] | None = None, **fields: Any
    ) -> Hooked:
        """Call a hook as this session does."""
        return hook(event, self.given(**fields), cwd=self.folder, environ=environ)

    def given(self, **fields: Any) -> dict[str, Any]:
        """The input that every hook of this session gets."""
        return {
            "session_id": self.name,
            "transcript_path": str(self.transcript),
            "cwd": str(self.project),
            **fields,
        }

    def prompts(self, text: str) -> str:
        """A person's words; gives the name of the prompt."""
        name = str(uuid.uuid4())
        self._write("user", {"role": "user", "content": text}, uuid=name, promptId=name)
        return name

    def says(self, text: str) -> None:
        """The assistant's words."""
        self._answers([{"type": "text", "text": text}], "end_turn")

    def objects(self, text: str) -> None:
        """Another hook's words, by which the client makes the assistant go on."""
        told = {"role": "user", "content": f"Stop hook feedback:\n{text}"}
        self._write("user", told, uuid=str(uuid.uuid4()), isMeta=True)

    def runs(self, command: str, output: str = "", *, failed: bool = False) -> None:
        """A command of the shell and what came back."""
        self.uses("Bash", {"command": command}, output, failed=failed)

    def uses(self, tool: str, given: dict[str, Any], output: str, *, failed: bool = False) -> None:
        """A tool and what came back."""
        use = f"toolu_{uuid.uuid4().hex[:12]}"
        self._answers([{"type": "tool_use", "id": use, "name": tool, "input": given}], "tool_use")
        result = {
            "type": "tool_result",
            "tool_use_id": use,
            "content": output,
            "is_error": failed,
        }
        self._write("user", {"role": "user", "content": [result]}, uuid=str(uuid.uuid4()))

    def writes(self, path: str) -> None:
        """A file that was not there before."""
        self.uses(
            "Write",
            {"file_path": str(self.project / path), "content": "x = 1\n"},
            f"File created successfully at: {self.project / path}",
        )

    def now(self, *, later_s: float = 1.0) -> str:
        """The session's next moment."""
        self._clock += timedelta(seconds=later_s)
        return self._clock.astimezone(UTC).isoformat().replace("+00:00", "Z")

    def _answers(self, content: list[dict[str, Any]], why: str) -> None:
        message = {
            "id": f"msg_{uuid.uuid4().hex[:12]}",
            "role": "assistant",
            "model": "claude-opus-5-5",
            "content": content,
            "stop_reason": why,
        }
        self._write("assistant", message, uuid=str(uuid.uuid4()))

    def _write(self, kind: str, message: dict[str, Any], **more: Any) -> None:
        line = {
            "type": kind,
            "message": message,
            "sessionId": self.name,
            "timestamp": self.now(),
            "cwd": str(self.project),
            "isSidechain": False,
            **more,
        }
        with self.transcript.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def exchanges(project: Path) -> list[Exchange]:
    """Everything that was said in the project, as memory has it."""
    with open_ralph(project) as ralph:
        talk = ralph.conversations
        return [one for listed in talk.list() for one in talk.exchanges(listed.conversation.id)]


def iterations(project: Path, feature: str) -> list[Iteration]:
    """Everything that was done on a feature, as memory has it."""
    with open_ralph(project) as ralph:
        return [one for _, one in ralph.feature(feature).iterations()]


def log(project: Path) -> list[str]:
    """The lines of the hooks' log."""
    file = Path(hooks_folder(str(project), disk.home())) / "hooks.log"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def files_below(folder: Path) -> set[str]:
    """Every file there is, to see whether one was made."""
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
