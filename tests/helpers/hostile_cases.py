"""What a clone may ship instead of an honest file, where, and everything that is run there then."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

if sys.platform == "win32":
    pytest.skip("links and pipes as POSIX has them", allow_module_level=True)

from hostile import ASKED, SEED, Ground, remove

_SPARSE_BYTES = 200 * 1024 * 1024

# Every path of `.ralph` that Ralph has a use for. A test compares this list with what Ralph makes.
PLACES = (
    "",
    ".gitignore",
    "rag_config.json",
    "db",
    "db/metadata.yaml",
    "db/features.yaml",
    "db/tasks.yaml",
    "db/disciplines.yaml",
    "db/memory",
    "db/.gitattributes",
    "db/memory/.gitattributes",
    "db/memory/auth.jsonl",
)
# Where earlier versions kept the machine's own state. Nothing of a clone's is looked at any more.
OLD_PLACES = (
    "cache",
    "cache/focus.json",
    "cache/hooks.log",
    "cache/index-v3.sqlite3",
    "cache/index-v3.sqlite3-shm",
    "cache/index-v3.sqlite3-wal",
    "cache/index.lock",
    "cache/locks",
    "cache/locks/feature-bdf49c3c3882102f.lock",
    "cache/plan",
    "cache/plan/lock",
    "cache/plan/rejected",
    "cache/plan/versions",
    "cache/plan/versions/65a93fd939d36e61d2b62dd94d1af136",
    "cache/plan/writes.jsonl",
    "cache/runs",
    "cache/runs/.lock",
    "cache/runs/x",
    "cache/runs/x/run.json",
)
OLD_FOLDERS = (
    "cache",
    "cache/locks",
    "cache/plan",
    "cache/plan/rejected",
    "cache/plan/versions",
    "cache/runs",
    "cache/runs/x",
)
OLD_FILES = tuple(place for place in OLD_PLACES if place not in OLD_FOLDERS)


def _link(place: Path, target: Path) -> None:
    place.symlink_to(os.path.relpath(target, place.parent))


def _link_to_file(place: Path, ground: Ground) -> None:
    _link(place, ground.home / ".bashrc")


def _link_to_folder(place: Path, ground: Ground) -> None:
    _link(place, ground.home / "Documents")


def _absolute_link(place: Path, ground: Ground) -> None:
    place.symlink_to(ground.home / ".ssh" / "id")


def _dangling_link(place: Path, ground: Ground) -> None:
    _link(place, ground.home / "made-by-ralph")


def _looping_link(place: Path, ground: Ground) -> None:
    place.symlink_to(place.name)


def _link_to_own(place: Path, ground: Ground) -> None:
    """The same place of the person's own project."""
    same = ground.own / ".ralph" / place.relative_to(ground.shipped)
    _link(place, same if same.exists() else ground.own / ".ralph" / "db" / "metadata.yaml")


def _link_inside(place: Path, ground: Ground) -> None:
    """Out of `.ralph`, but not out of the clone."""
    _link(place, ground.evil / "README.md")


def _device(place: Path, ground: Ground) -> None:
    place.symlink_to("/dev/zero")


def _environment(place: Path, ground: Ground) -> None:
    place.symlink_to("/proc/self/environ")


def _pipe(place: Path, ground: Ground) -> None:
    os.mkfifo(place)


def _socket(place: Path, ground: Ground) -> None:
    # A socket's path has at most 108 bytes, so it is named from its folder.
    here = Path.cwd()
    os.chdir(place.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(place.name)
    finally:
        os.chdir(here)


def _folder(place: Path, ground: Ground) -> None:
    place.mkdir()
    (place / "x").write_text("{}")


def _plain_file(place: Path, ground: Ground) -> None:
    place.write_text("x: 1\n")


def _sparse(place: Path, ground: Ground) -> None:
    with place.open("wb") as file:
        file.truncate(_SPARSE_BYTES)


def _deep(place: Path, ground: Ground) -> None:
    place.write_text("[" * 20_000)


def _alias_bomb(place: Path, ground: Ground) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    lines += ["version: 1", "features: *a9", "tasks: *a9", "disciplines: *a9", "project_id: *a9"]
    place.write_text("\n".join(lines) + "\n")


def _no_utf8(place: Path, ground: Ground) -> None:
    place.write_bytes(b'{"a": "\xff\xfe\xc0\xaf\xed\xa0\x80"}\n' * 3)


def _nul(place: Path, ground: Ground) -> None:
    place.write_bytes(b"version: 1\x00\nproject_id: \x00\n{}\x00\n")


Maker = Callable[[Path, Ground], None]
LINKS: dict[str, Maker] = {
    "link-to-file": _link_to_file,
    "link-to-folder": _link_to_folder,
    "absolute-link": _absolute_link,
    "dangling-link": _dangling_link,
    "looping-link": _looping_link,
    "link-to-own": _link_to_own,
    "link-inside": _link_inside,
    "link-to-device": _device,
    **({"link-to-environ": _environment} if sys.platform == "linux" else {}),
}
KINDS: dict[str, Maker] = {
    **LINKS,
    "pipe": _pipe,
    "socket": _socket,
    "folder": _folder,
    "file": _plain_file,
    "sparse": _sparse,
    "deep": _deep,
    "alias-bomb": _alias_bomb,
    "no-utf8": _no_utf8,
    "nul": _nul,
}


def ship(ground: Ground, place: str, kind: str) -> Path:
    """Put this kind of thing at this place of the clone's `.ralph`."""
    path = ground.shipped / place
    path.parent.mkdir(parents=True, exist_ok=True)
    remove(path)
    KINDS[kind](path, ground)
    return path


class Step(NamedTuple):
    """One thing a person, a client or an agent does in the clone."""

    words: tuple[str, ...]
    stdin: str = ""
    # The places that this one is known to use.
    uses: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How it is called in a report."""
        return " ".join(self.words[:3])


HOOKS = (
    "session-start",
    "user-prompt-submit",
    "post-tool-use-failure",
    "pre-compact",
    "stop",
    "stop-failure",
    "session-end",
)
_ITERATION = json.dumps({"summary": "Tried again", "outcome": "failure", "task_id": 1})
_TALK = json.dumps(
    {"version": 1, "conversations": [{"exchanges": [{"user": "u", "assistant": "a"}]}]}
)
_EXPORTED = json.dumps(
    {
        "stream": "auth",
        "entry": {
            "v": 1,
            "kind": "iteration",
            "id": "6e9e1e0c-1b36-5b4c-8c1c-0d2f4b9b0001",
            "number": 9,
            "at": "2026-01-01T00:00:00Z",
            "body": {"feature": "auth", "summary": "brought in"},
        },
    }
)
_LESSON = (
    *("--type", "failure_solution", "--failure-description", "it fails"),
    *("--error-message", "refused", "--solution", "wait"),
)
_PLAN = ("db/features.yaml", "db/tasks.yaml", "db/disciplines.yaml", "cache/plan")
_MEMORY = ("db/memory", "cache/index")
_ID = ("", "db", "db/metadata.yaml", "rag_config.json", ".gitignore")

# In the order of a working day: looking first, then writing, then deleting.
COMMANDS = (
    Step(("status",), uses=(*_ID, "cache/index")),
    Step(("doctor",), uses=_ID),
    Step(("config",), uses=("rag_config.json",)),
    Step(("search", ASKED), uses=_MEMORY),
    Step(("search", "--conversations", ASKED), uses=_ID),
    Step(("search", "--knowledge", ASKED)),
    Step(("recent",), uses=_MEMORY),
    Step(("recent", "--feature", "auth"), uses=_MEMORY),
    Step(("show", "1a2b3c4d"), uses=_MEMORY),
    Step(("files",), uses=_MEMORY),
    Step(("failures",), uses=_MEMORY),
    Step(("feature", "list"), uses=("db/features.yaml",)),
    Step(("feature", "show", "auth"), uses=("db/features.yaml",)),
    Step(("task", "list"), uses=("db/tasks.yaml",)),
    Step(("task", "ready"), uses=("db/tasks.yaml",)),
    Step(("discipline", "list"), uses=("db/disciplines.yaml",)),
    Step(("learning", "list", "--feature", "auth"), uses=("db/features.yaml",)),
    Step(("plan", "check"), uses=_PLAN),
    Step(("prompt", "1"), uses=(*_PLAN, *_MEMORY)),
    Step(("journal", "verify"), uses=_MEMORY),
    Step(("index", "status"), uses=_MEMORY),
    Step(("index", "verify"), uses=_MEMORY),
    Step(("conversations", "list"), uses=("db/metadata.yaml",)),
    Step(("conversations", "export", "-"), uses=("db/metadata.yaml",)),
    Step(("conversations", "add-document", "--list"), uses=("db/metadata.yaml",)),
    Step(("knowledge", "staged"), uses=("db/metadata.yaml",)),
    Step(("gate", "list"), uses=("db/metadata.yaml",)),
    Step(("export", "-"), uses=_MEMORY),
    Step(("hooks", "status")),
    Step(("focus",), uses=("cache/focus.json",)),
    Step(("init",), uses=(*_ID, "db/.gitattributes", "db/memory/.gitattributes", "db/memory")),
    Step(("config", "search_limit", "5"), uses=("rag_config.json",)),
    Step(("record", "--feature", "auth", "-"), _ITERATION, uses=(*_MEMORY, "cache/locks")),
    Step(("feature", "add", "more", "--description", "d"), uses=_PLAN),
    Step(("task", "add", "More", "--feature", "auth"), uses=_PLAN),
    Step(("task", "update", "1", "--comment", "on it"), uses=_PLAN),
    Step(("discipline", "add", "frontend"), uses=_PLAN),
    Step(("learning", "add", "Ask before deleting.", "--feature", "auth"), uses=_PLAN),
    Step(("plan", "import", "-"), "# Auth\n\n- [ ] Another task\n", uses=_PLAN),
    Step(("focus", "auth", "1"), uses=("cache/focus.json", "db/tasks.yaml")),
    Step(("record", "-"), _ITERATION, uses=("cache/focus.json", "db/memory")),
    Step(("gate", "reject", "1", "--type", "design", "--feedback", "no"), uses=_PLAN),
    Step(("gate", "approve", "1", "--type", "design", "--approach", "yes"), uses=_PLAN),
    Step(("knowledge", "capture", *_LESSON), uses=("db/metadata.yaml",)),
    Step(("conversations", "import", "-"), _TALK, uses=("db/metadata.yaml",)),
    Step(("import", "-"), _EXPORTED, uses=_MEMORY),
    Step(
        ("run", "--agent", "/bin/true", "--max-iterations", "1"),
        uses=(*_PLAN, *_MEMORY, "cache/runs", "cache/locks"),
    ),
    Step(("index", "rebuild"), uses=_MEMORY),
    Step(("index", "prune"), uses=_MEMORY),
    Step(("pause",), uses=("db/metadata.yaml",)),
    Step(("resume",), uses=("db/metadata.yaml",)),
    Step(("task", "delete", "1"), uses=_PLAN),
    Step(("feature", "delete", "more"), uses=(*_PLAN, *_MEMORY)),
    Step(("forget", "--match", "tried", "--yes"), uses=(*_MEMORY, "db/metadata.yaml")),
    Step(("forget", "--project", "--yes"), uses=(*_MEMORY, "db/metadata.yaml")),
)
# A server's mode, and calls that it understands.
SERVERS: dict[tuple[str, ...], tuple[tuple[str, dict[str, object]], ...]] = {
    ("--feature", "auth", "--task", "1"): (
        ("search_feature_memory", {"query": ASKED}),
        ("get_recent_iterations", {}),
        ("get_feature_files", {}),
        ("get_failed_attempts", {}),
        ("append_learning", {"text": "Read the manual first."}),
        ("update_task", {"status": "in_progress", "comment": "begun"}),
        ("update_feature", {"architecture": "One module for each door of the house."}),
    ),
    ("--focus",): (
        ("search_feature_memory", {"query": ASKED}),
        ("search_conversations", {"query": ASKED}),
    ),
    ("--conversations",): (("search_conversations", {"query": ASKED}),),
    ("--planning",): (
        ("get_plan", {}),
        ("create_feature", {"name": "third", "description": "The third thing."}),
        ("create_task", {"feature": "auth", "title": "The third task"}),
    ),
}


def run_hooks(ground: Ground, events: tuple[str, ...] = HOOKS) -> None:
    """Every event of a session in the clone."""
    for event in events:
        ground.hook(event)


def run_bad_hook(ground: Ground) -> None:
    """A hook whose input is broken: something to log."""
    ground.run("hook", "session-start", stdin="{no JSON")


def run_step(ground: Ground, step: Step) -> None:
    """One step in the clone."""
    ground.run(*step.words, stdin=step.stdin)


def run_server(ground: Ground, mode: tuple[str, ...]) -> str:
    """A server of this mode in the clone, asked everything it knows; gives all it said."""
    with ground.serve(*mode) as server:
        if server.greet() is not None:
            server.ask("tools/list")
            for name, arguments in SERVERS[mode]:
                server.call(name, **arguments)
            listed = server.ask("resources/list") or {}
            for one in listed.get("result", {}).get("resources", []):
                server.ask("resources/read", {"uri": one["uri"]})
    return server.heard


def run_everything(ground: Ground) -> None:
    """Everything there is, in the order of a working day."""
    run_hooks(ground)
    run_bad_hook(ground)
    for mode in SERVERS:
        run_server(ground, mode)
    for step in COMMANDS:
        run_step(ground, step)


def run_sample(ground: Ground, place: str, chance: random.Random) -> None:
    """Some of everything: more of what uses this place; which, chance says."""
    run_hooks(ground, tuple(event for event in HOOKS if chance.random() < 0.2))
    if place.startswith("cache") or chance.random() < 0.3:
        run_bad_hook(ground)
    if chance.random() < 0.1:
        run_server(ground, chance.choice(sorted(SERVERS)))
    users = [step for step in COMMANDS if _used(step, place)]
    chosen = {*chance.sample(users, min(2, len(users))), chance.choice(COMMANDS)}
    for step in COMMANDS:
        if step in chosen:
            run_step(ground, step)


def run_share(ground: Ground, share: float, chance: random.Random) -> None:
    """This share of everything; which, chance says."""
    run_hooks(ground, tuple(event for event in HOOKS if chance.random() < share))
    run_bad_hook(ground)
    for mode in SERVERS:
        if chance.random() < share:
            run_server(ground, mode)
    for step in COMMANDS:
        if chance.random() < share:
            run_step(ground, step)


def chance_of(*what: object) -> random.Random:
    """Chance that is the same for the same case and seed."""
    return random.Random("/".join(map(str, (SEED, *what))))


def _used(step: Step, place: str) -> bool:
    return any(place.startswith(use) if use else not place for use in step.uses)
