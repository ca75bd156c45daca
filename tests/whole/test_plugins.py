"""Other packages add kinds of records, clients and vector stores by entry points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BOOKMARK = """
import msgspec
from ralph.recall.kinds import Kind


class Bookmark(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    url: str
    why: str


ROW = Kind(
    name="bookmark",
    label="bookmark",
    stream="notes",
    struct=lambda: Bookmark,
    title=lambda content: content.url,
    text=lambda content: content.why,
    daily=True,
)
"""


def install(
    folder: Path, module: str, source: str, group: str, name: str, value: str = "ROW"
) -> None:
    """Put a package with one entry point into a folder, as an installer does."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{module}.py").write_text(source, encoding="utf-8")
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", encoding="utf-8"
    )
    (about / "entry_points.txt").write_text(
        f"[{group}]\n{name} = {module}:{value}\n", encoding="utf-8"
    )


def run(
    root: Path,
    packages: Path,
    *args: str,
    environment: dict[str, str] | None = None,
    text: str = "",
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *args],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(packages), **(environment or {})},
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


SAVE = """
import ralph, toy_bookmark
with ralph.open_ralph() as memory:
    content = toy_bookmark.Bookmark(url="https://sqlite.org/fts5.html", why="How bm25 is counted")
    _, fresh = memory.notes.remember(content)
    assert fresh
    _, fresh = memory.notes.remember(content)
    assert not fresh
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    install(folder, "toy_bookmark", BOOKMARK, "ralph.kinds", "bookmark")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    return folder


def test_a_kind_from_another_package_is_saved_found_shown_and_forgotten(
    root: Path, packages: Path
) -> None:
    assert run(root, packages, "-m", "ralph", "init").returncode == 0
    saved = run(root, packages, "-c", SAVE)
    assert saved.returncode == 0, saved.stderr

    found = run(root, packages, "-m", "ralph", "search", "bm25", "--json")
    [hit] = json.loads(found.stdout)
    assert hit["kind"] == "bookmark"
    assert hit["record"] == {"url": "https://sqlite.org/fts5.html", "why": "How bm25 is counted"}

    shown = run(root, packages, "-m", "ralph", "show", hit["id"])
    assert "bookmark" in shown.stdout
    assert "How bm25 is counted" in shown.stdout
    recent = run(root, packages, "-m", "ralph", "recent")
    assert "https://sqlite.org/fts5.html" in recent.stdout
    exported = run(root, packages, "-m", "ralph", "export", "-")
    assert "How bm25 is counted" in exported.stdout

    forgotten = run(root, packages, "-m", "ralph", "forget", hit["id"], "--yes")
    assert forgotten.returncode == 0, forgotten.stderr
    gone = run(root, packages, "-m", "ralph", "search", "bm25", "--json")
    assert json.loads(gone.stdout) == []


def test_a_package_in_the_current_folder_adds_nothing(root: Path, tmp_path: Path) -> None:
    traces = tmp_path / "ran"
    source = f"open({str(traces)!r}, 'w').close()\n{BOOKMARK}"
    install(root, "toy_bookmark", source, "ralph.kinds", "bookmark")

    found = run(root, root, "-c", "from ralph.recall.kinds import KINDS; print(KINDS.of('x'))")

    assert found.stdout.strip() == "None", found.stderr
    assert not traces.exists()


CLIENT = '''
"""A client whose output is that of Claude Code, one level deeper."""
import json
from ralph.clients import Client
from ralph.clients.claude_code import (
    LOGIN_SHELLS, REVIEW_MODEL, SESSION_TYPES, TAKES_SERVERS, sessions, setup, variables,
)
from ralph.clients.claude_code import open_capture as open_claude

ROW = Client(
    agent="toy", source="toy-code", title="Toy Code", module="toy_client", hooks="toy_client"
)
DIALECTS = ("toy",)
OUTPUTS = ("the output of `toy`",)


def command(call):
    return ["python3", "-c", "print('toy')"]


def dialect_of(event):
    return "toy" if "toy" in event else None


class Capture:
    dialect = "toy"

    def __init__(self, **source):
        self._capture = open_claude("stream-json", **source)
        self.live = self._capture.live
        self.complaints = self._capture.complaints

    def feed(self, line):
        self._capture.feed(json.dumps(json.loads(line)["toy"]).encode())

    def finish(self):
        return self._capture.finish()


def open_capture(dialect, *, file, root, injected):
    return Capture(file=file, root=root, injected=injected)


def hook_input(event, given):
    return {**given, "prompt": given["said"]} if event == "user-prompt-submit" else given
'''

OUTPUT = [
    {"type": "system", "subtype": "init", "session_id": "s-1", "model": "toy-1"},
    {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "session_id": "s-1",
        "result": "Built the login form, and the session cookie expires after 15 minutes.",
    },
]


@pytest.fixture
def toy_client(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    install(folder, "toy_client", CLIENT, "ralph.clients", "toy")
    return folder


def test_the_output_of_a_client_from_another_package_is_recorded(
    root: Path, toy_client: Path
) -> None:
    run(root, toy_client, "-m", "ralph", "init")
    (root / "out.jsonl").write_text(
        "".join(json.dumps({"toy": event}) + "\n" for event in OUTPUT), encoding="utf-8"
    )

    saved = run(root, toy_client, "-m", "ralph", "record", "out.jsonl", "--feature", "auth")

    assert saved.returncode == 0, saved.stderr
    found = run(root, toy_client, "-m", "ralph", "search", "session cookie", "--json")
    assert [hit["kind"] for hit in json.loads(found.stdout)] == ["iteration"]


def test_the_hooks_of_a_client_from_another_package_are_answered(
    root: Path, toy_client: Path
) -> None:
    run(root, toy_client, "-m", "ralph", "init")
    note = "The staging database resets every night at three."
    run(root, toy_client, "-m", "ralph", "remember", note)
    question = {
        "said": "When does the staging database reset?",
        "session_id": "s",
        "cwd": str(root),
    }

    answered = run(
        root,
        toy_client,
        *("-m", "ralph", "hook", "user-prompt-submit", "--agent", "toy"),
        environment={"RALPH_HOOK_TIMEOUT_S": "60"},
        text=json.dumps(question),
    )

    assert "resets every night" in answered.stdout, answered.stderr


STORE = """
import numpy as np
from ralph.index.sqlite import SqliteStore


class Letters:
    title = "letters"
    batch = 100
    identity = "letters:1"
    dims = 26

    def pieces(self, text):
        return [text]

    def embed_passages(self, texts, *, budget_s=None):
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text):
        counts = np.array([text.lower().count(chr(97 + n)) for n in range(26)], dtype=np.float32)
        return counts / max(float(np.linalg.norm(counts)), 1.0)

    def check(self):
        pass


def open_embedder(settings, cache):
    return Letters()


def open_store(settings, folder, home, scope):
    return SqliteStore(folder / "toy.db", [folder])
"""


def test_a_vector_store_and_an_embedder_come_from_another_package(
    root: Path, tmp_path: Path
) -> None:
    packages = tmp_path / "packages"
    install(packages, "toy_store", STORE, "ralph.vector_stores", "toy", "open_store")
    about = packages / "toy_store-1.0.dist-info" / "entry_points.txt"
    points = "\n[ralph.embedders]\nletters = toy_store:open_embedder\n"
    about.write_text(about.read_text(encoding="utf-8") + points, encoding="utf-8")
    run(root, packages, "-m", "ralph", "init")
    for setting, value in (("vector_store", "toy"), ("embedder", "letters")):
        chosen = run(root, packages, "-m", "ralph", "config", "--user", setting, value)
        assert chosen.returncode == 0, chosen.stderr

    run(root, packages, "-m", "ralph", "remember", "Tokens expire after 15 minutes.")
    found = run(root, packages, "-m", "ralph", "search", "when do tokens expire", "--json")

    assert [hit["kind"] for hit in json.loads(found.stdout)] == ["note"], found.stderr
    status = run(root, packages, "-m", "ralph", "status")
    assert "letters 26d" in status.stdout
    assert list(Path(os.environ["RALPH_HOME"]).rglob("toy.db"))

    missing = run(root, tmp_path, "-m", "ralph", "search", "when do tokens expire")
    assert missing.returncode == 1
    assert "toy" in missing.stderr
