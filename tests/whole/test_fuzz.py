"""Input that is nearly right: one clear line or an answer, no traceback, no hang, nothing harmed.

Each target is a place where text from elsewhere comes in. RALPH_HOSTILE_ROUNDS=100 tries a hundred
times as many inputs, RALPH_HOSTILE_SEED others. An input that fails is kept and named.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("links, pipes and forks as POSIX has them", allow_module_level=True)

from fuzzing import mutated, odd_words, transcripts
from hostile import ASKED, DISCIPLINES, FEATURES, ROUNDS, SEED, TASKS, Dialogue, Ground, hook_input
from hostile_cases import COMMANDS, HOOKS, SERVERS, Step, chance_of, run_step
from places import FIXTURES

pytestmark = pytest.mark.timeout(60 * ROUNDS)

# So many inputs for each target, in rounds of their own; all but the first are slow.
_INPUTS = 5
_PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2))]
# A fresh home after so many inputs: what was kept of them must not slow down the next ones.
_UNTIL_RESET = 15

Target = Callable[[Ground, random.Random], bytes]


def _record(ground: Ground, chance: random.Random) -> bytes:
    data = mutated(chance.choice(transcripts()), chance)
    ground.run("record", "--feature", "auth", "-", stdin=data)
    return data


def _record_iterations(ground: Ground, chance: random.Random) -> bytes:
    whole = {
        "task_id": 1,
        "task_title": "t",
        "outcome": "failure",
        "summary": "s",
        "timestamp": "2026-02-08T09:00:00Z",
        "errors": [{"message": "m", "error_type": "test", "file_path": "a.py", "line": 8}],
        "decisions": [{"description": "d", "rationale": "r"}],
        "files_touched": [{"path": "src/app.py", "action": "read"}],
        "tokens_used": 5,
        "cost_usd": 0.1,
        "session_id": "run-7",
    }
    data = mutated(json.dumps(whole).encode() + b"\n", chance)
    ground.run("record", "--feature", "auth", "-", stdin=data)
    ground.run("recent", "--feature", "auth")
    return data


def _transcript(ground: Ground, chance: random.Random) -> bytes:
    data = mutated(chance.choice(transcripts()), chance)
    ground.transcript.write_bytes(data)
    for event in chance.sample(("stop", "session-end", "pre-compact", "stop-failure"), 2):
        ground.hook(event)
    return data


def _client_files(ground: Ground, chance: random.Random) -> bytes:
    client = chance.choice(("claude-code", "codex"))
    files = {"claude-code": "transcripts/*.jsonl", "codex": "codex/*.jsonl"}[client]
    seed = chance.choice([f for f in sorted(FIXTURES.glob(files)) if f.stat().st_size < 100_000])
    data = mutated(seed.read_bytes(), chance)
    folder = ground.home / "sessions" / "2026" / "01" / "01"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rollout-2026-01-01T00-00-00-x.jsonl").write_bytes(data)
    ground.run("conversations", "import", client, str(ground.home / "sessions"), "--all")
    shutil.rmtree(ground.home / "sessions")
    return data


_MESSAGE = {"role": "user", "content": "Why?", "create_time": 1.5}
_TALKS = (
    {
        "version": 1,
        "conversations": [
            {
                "id": "9f0c2a7d5e1b4c38",
                "title": "Timeouts",
                "created": "2026-11-02T10:00:00Z",
                "exchanges": [
                    {
                        "id": "41d0a5c7e2b89f63",
                        "user": "Why?",
                        "assistant": "Full.",
                        "started": "2026-11-02T10:00:00Z",
                        "status": "complete",
                        "tokens_used": 3,
                        "errors": [{"message": "m"}],
                        "files_touched": [{"path": "a", "action": "read"}],
                        "messages": [{"role": "tool", "content": "x", "tool": "Bash"}],
                    }
                ],
            }
        ],
    },
    {"messages": [_MESSAGE, {"role": "assistant", "content": [{"type": "text", "text": "So."}]}]},
    [
        {
            "title": "t",
            "current_node": "b",
            "mapping": {
                "a": {"id": "a", "message": None, "parent": None, "children": ["b"]},
                "b": {
                    "id": "b",
                    "parent": "a",
                    "children": [],
                    "message": {"author": {"role": "user"}, "content": {"parts": ["Why?"]}},
                },
            },
        }
    ],
    [{"uuid": "u", "name": "n", "messages": [{"role": "human", "content": "Why?"}]}],
)


def _talks(ground: Ground, chance: random.Random) -> bytes:
    data = mutated(json.dumps(chance.choice(_TALKS)).encode(), chance)
    file = ground.home / chance.choice(("talk.json", "talk.jsonl"))
    file.write_bytes(data)
    ground.run("conversations", "import", str(file))
    ground.run("conversations", "list")
    file.unlink()
    return data


def _journal(ground: Ground, chance: random.Random) -> bytes:
    file = ground.shipped / "db" / "memory" / "auth.jsonl"
    data = mutated(file.read_bytes() * chance.choice((1, 3)), chance)
    kept = file.read_bytes()
    file.write_bytes(data)
    _some(ground, chance, "db/memory")
    file.write_bytes(kept)
    return data


def _plan(ground: Ground, chance: random.Random) -> bytes:
    name, text = chance.choice(
        (("features", FEATURES), ("tasks", TASKS), ("disciplines", DISCIPLINES))
    )
    data = mutated(text.encode(), chance)
    ground.ship(f"db/{name}.yaml", data)
    _some(ground, chance, f"db/{name}.yaml")
    ground.hook("session-start")
    for whole, kept in (("features", FEATURES), ("tasks", TASKS), ("disciplines", DISCIPLINES)):
        ground.ship(f"db/{whole}.yaml", kept)
    return data


def _plan_import(ground: Ground, chance: random.Random) -> bytes:
    checklist = "# Sign in\n\nPeople sign in.\n\n- [ ] A form\n  - [x] A button\n- [ ] A test\n"
    text = chance.choice((checklist, FEATURES, TASKS, FEATURES + TASKS.partition("\n")[2]))
    data = mutated(text.encode(), chance)
    ground.run("plan", "import", "-", "--feature", "auth", stdin=data)
    ground.run("plan", "check")
    return data


def _settings(ground: Ground, chance: random.Random) -> bytes:
    known = {"search_limit": 3, "min_score": 0.5, "embedder": "none", "agent_env": ["A"]}
    known |= {
        "hook_capture": True,
        "technology": "python",
        "hook_timeout_s": 10,
        "model_work": None,
    }
    data = mutated(json.dumps(known).encode(), chance)
    file = chance.choice((ground.shipped / "rag_config.json", ground.memory / "config.json"))
    file.write_bytes(data)
    ground.run(*chance.choice((("status",), ("config",), ("config", "search_limit", "4"))))
    ground.run("doctor")
    ground.hook(chance.choice(HOOKS))
    file.unlink(missing_ok=True)
    return data


def _metadata(ground: Ground, chance: random.Random) -> bytes:
    file = ground.shipped / "db" / "metadata.yaml"
    kept = file.read_bytes()
    data = mutated(kept, chance)
    file.write_bytes(data)
    ground.run(*chance.choice((("status",), ("init",), ("doctor",))))
    ground.hook(chance.choice(HOOKS))
    file.write_bytes(kept)
    return data


def _hook_inputs(ground: Ground, chance: random.Random) -> bytes:
    lines = (FIXTURES / "claude_code" / "hook_inputs.jsonl").read_bytes().splitlines()
    failure = (FIXTURES / "hooks" / "post_tool_use_failure.json").read_bytes()
    here = json.dumps(hook_input(ground, ground.evil)).encode()
    data = mutated(chance.choice((here, here, failure, chance.choice(lines))), chance)
    ground.run("hook", chance.choice(HOOKS), stdin=data)
    return data


def _exported(ground: Ground, chance: random.Random) -> bytes:
    lines = ground.run("export", "-", cwd=chance.choice((ground.own, ground.evil))).out
    data = mutated(lines.encode(), chance)
    ground.run("import", "-", stdin=data, cwd=ground.home / "Documents")
    ground.run("import", "-", stdin=data)
    return data


def _agents_output(ground: Ground, chance: random.Random) -> bytes:
    # One that says that a limit of the model's maker is reached is waited for.
    seeds = [data for data in transcripts() if b"rate_limit" not in data]
    data = mutated(chance.choice(seeds), chance)
    file = ground.home / "output.jsonl"
    file.write_bytes(data)
    agent = f"cat {shlex.quote(str(file))}"
    ground.run("run", "--agent", agent, "--max-iterations", "1", "--timeout", "20")
    file.unlink()
    return data


def _homes_files(ground: Ground, chance: random.Random) -> bytes:
    """A file of Ralph's own home, after a disk or a person damaged it."""
    files = [file for file in sorted(ground.memory.rglob("*")) if file.is_file()]
    file = chance.choice(files)
    data = mutated(file.read_bytes(), chance)
    file.write_bytes(data)
    for step in (COMMANDS[0], COMMANDS[4], COMMANDS[5], *chance.sample(COMMANDS, 1)):
        run_step(ground, step)
    ground.hook(chance.choice(HOOKS))
    return f"{file.relative_to(ground.memory)}\n".encode() + data


def _words(ground: Ground, chance: random.Random) -> bytes:
    """Arguments that nobody would type."""
    one, other = odd_words(chance), odd_words(chance)
    words = chance.choice(
        (
            ("search", one),
            ("search", "--feature", one, "x"),
            ("show", one),
            ("forget", one, "--yes"),
            ("feature", "add", one, "--description", other),
            ("task", "add", one, "--feature", "auth", "--priority", other),
            ("task", "update", one, "--comment", other),
            ("learning", "add", one, "--feature", "auth"),
            ("focus", one, other),
            ("config", one, other),
            ("--project", one, "status"),
            ("conversations", "show", one),
            ("conversations", "list", one),
            ("search", "--conversations", "--since", one, "x"),
            ("forget", "--before", one, "--yes"),
            ("knowledge", "query", one),
            ("prompt", one),
            ("run", "--agent", one, "--max-iterations", "1"),
            ("hook", one),
            ("import", one),
            ("record", "--feature", one, "-"),
        )
    )
    ground.run(*words)
    return "\n".join(words).encode("utf-8", "replace")


def _some(ground: Ground, chance: random.Random, place: str) -> None:
    users = [step for step in COMMANDS if any(place.startswith(use) for use in step.uses if use)]
    chosen: list[Step] = chance.sample(users, 3)
    for step in chosen:
        run_step(ground, step)


TARGETS: dict[str, Target] = {
    "record": _record,
    "iterations": _record_iterations,
    "transcript": _transcript,
    "client files": _client_files,
    "talks": _talks,
    "journal": _journal,
    "plan": _plan,
    "plan import": _plan_import,
    "settings": _settings,
    "metadata": _metadata,
    "hook input": _hook_inputs,
    "export": _exported,
    "agent's output": _agents_output,
    "home's files": _homes_files,
    "words": _words,
}


@pytest.mark.parametrize("part", _PARTS)
@pytest.mark.parametrize("target", TARGETS)
def test_input_that_is_nearly_right(ground: Ground, target: str, part: int, tmp_path: Path) -> None:
    found = []
    inputs = 2 if target == "agent's output" else _INPUTS  # a run starts processes
    first = part * inputs * ROUNDS
    for number in range(first, first + inputs * ROUNDS):
        if number % _UNTIL_RESET == 0 and number > first:
            ground.reset()
        seen = len(ground.runs)
        with _harmless(ground, target, number):
            data = TARGETS[target](ground, chance_of(target, number))
        faults = [fault for ran in ground.runs[seen:] for fault in ran.faults()]
        if faults:
            file = tmp_path / f"input-{number}"
            file.write_bytes(data)
            found += [f"input {number} of seed {SEED}, in {file}:", *faults]
    assert not found, "\n" + "\n".join(found)


@contextlib.contextmanager
def _harmless(ground: Ground, target: str, number: int) -> Iterator[None]:
    """Whatever happens to this input, it happens to nothing but Ralph's own files."""
    before = ground.outside()
    try:
        yield
    finally:
        after = ground.outside()
        changed = [path for path in before | after if before.get(path) != after.get(path)]
        ours = (str(ground.transcript.relative_to(ground.home)),)
        assert [path for path in changed if path not in ours] == [], (target, number, SEED)


_REQUESTS = [
    {"method": "tools/list", "params": {}},
    {"method": "resources/list", "params": {}},
    {"method": "resources/read", "params": {"uri": "feature://auth/files/README.md"}},
    {"method": "ping", "params": {}},
    {"method": "prompts/list", "params": {"cursor": "x"}},
    {
        "method": "tools/call",
        "params": {"name": "search_feature_memory", "arguments": {"query": ASKED, "limit": 3}},
    },
    {
        "method": "tools/call",
        "params": {
            "name": "update_task",
            "arguments": {"task_id": 1, "status": "in_progress", "comment": "c"},
        },
    },
]


@pytest.mark.parametrize("mode", SERVERS, ids=" ".join)
def test_a_server_answers_requests_that_are_nearly_right(
    ground: Ground, mode: tuple[str, ...], tmp_path: Path
) -> None:
    calls = [
        {"method": "tools/call", "params": {"name": name, "arguments": arguments}}
        for name, arguments in SERVERS[mode]
    ]
    before = ground.before()
    lines = []
    with ground.serve(*mode) as server:
        assert server.greet() is not None
        for number in range(3 * _INPUTS * ROUNDS):
            chance = chance_of("mcp", mode, number)
            wish = {"jsonrpc": "2.0", "id": f"r{number}", **chance.choice(_REQUESTS + calls * 2)}
            lines.append(mutated(json.dumps(wish).encode(), chance).replace(b"\n", b" "))
            (tmp_path / "lines").write_bytes(b"\n".join(lines))
            server.write(lines[-1])
            wanted = _due(lines[-1])
            if wanted is not None:
                assert server.answer(wanted) is not None, f"seed {SEED}, line {number}"
            assert server.ask("ping") is not None, (
                f"seed {SEED}, line {number}: {lines[-1][:300]!r}"
            )
    ground.check(before, cache=False)


def _due(line: bytes) -> int | str | None:
    """The id of a request that every reader of JSON-RPC understands, so that one is due."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        wish = json.loads(line.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return None
    match wish:
        case {"jsonrpc": "2.0", "id": str(name), "method": str(), "params": dict()}:
            plain = set(wish) == {"jsonrpc", "id", "method", "params"} and line.count(b'"id"') == 1
            return name if plain and name.isascii() and name.isprintable() else None
    return None


def test_a_dialogue_notices_a_server_that_says_nothing(tmp_path: Path) -> None:
    """The tests above could not fail otherwise."""
    theirs, ours = os.pipe()
    with contextlib.ExitStack() as stack:
        nobody, silent = os.pipe()
        stack.callback(os.close, silent)
        stack.callback(os.close, theirs)
        dialogue = Dialogue(ours, nobody, patience_s=0.1)
        stack.callback(dialogue.close)
        with pytest.raises(pytest.fail.Exception, match="did not answer"):
            dialogue.ask("ping")
