"""`scripts/bench paths`: how many files and functions of the package each data path crosses.

Each path runs in its own process, in a temporary project, under `sys.setprofile`. A function counts
if it is called; code that only runs because a module is imported does not count.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

import ralph
from bench import corpus
from bench.measure import FEATURE, BenchProject, child_environment, fill, python, temporary_project
from bench.report import aligned, parser, print_json, print_lines
from bench.start import Server
from ralph.errors import RalphError
from ralph.plan.edit import create_feature, create_task
from ralph.plan.store import Plan
from ralph.records.knowledge import FailureSolution

_PACKAGE = Path(ralph.__file__).parent
_RECORDS = 20
_TIMEOUT_S = 120.0

# Counts in the child. Module and class bodies are not functions (CO_OPTIMIZED is 1), and code that
# runs while a module is being imported belongs to the import.
_COUNTING = """
import json, os, sys, threading
from ralph.__main__ import main
out, package, sys.argv = sys.argv[1], sys.argv[2], ["ralph", *sys.argv[3:]]
crossed, importing = set(), threading.local()
def profile(frame, event, _):
    code = frame.f_code
    if event not in ("call", "return") or not code.co_filename.startswith(package):
        return
    if code.co_name == "<module>":
        importing.depth = getattr(importing, "depth", 0) + (1 if event == "call" else -1)
    elif event == "call" and code.co_flags & 1 and not getattr(importing, "depth", 0):
        if not code.co_name.startswith("<"):
            crossed.add((code.co_filename[len(package) + 1 :], code.co_qualname))
def write():
    sys.setprofile(None)
    with open(out, "w", encoding="utf-8") as file:
        json.dump(sorted(crossed.copy()), file)
def leave(code, leave=os._exit):
    write()
    leave(code)
os._exit = leave  # the server and the hooks end with it
threading.setprofile(profile)
sys.setprofile(profile)
try:
    main()
finally:
    write()
"""
_SCRIPT = {
    "runs": [
        {
            "steps": [
                {"say": "I look at the module first, then I change it."},
                {"read": "module.py"},
                {"edit": "module.py", "old": "x = 1", "new": "x = 2"},
                {"bash": "echo 'ValueError: no name'; exit 1"},
                {"say": "I decided to keep x because other modules import it."},
            ],
            "result": "Changed x; one command still fails.",
        }
    ]
}


class CrossedPath(msgspec.Struct, frozen=True):
    """A data path and what it crosses in the package: files, and functions as `file:name`."""

    what: str
    files: tuple[str, ...]
    functions: tuple[str, ...]


def count(place: BenchProject, *words: str) -> list[str]:
    """Return the command that runs `ralph WORDS` and counts."""
    return python(_COUNTING, str(place.scratch / "crossed.json"), str(_PACKAGE), *words)


def run(place: BenchProject, *words: str, stdin: str = "") -> None:
    """Run `ralph WORDS` to its end and count."""
    # Counting is slow: a hook that times out would cross fewer files.
    environ = {**child_environment(place.home), "RALPH_HOOK_TIMEOUT_S": "60"}
    done = subprocess.run(
        count(place, *words),
        input=stdin.encode(),
        cwd=place.project,
        env=environ,
        capture_output=True,
        timeout=_TIMEOUT_S,
    )
    if done.returncode:
        raise RalphError(f"`ralph {shlex.join(words)}` failed: {done.stderr.decode()}")


def record(place: BenchProject) -> None:
    """Turn an agent's stream-json into a record."""
    script = place.scratch / "script.json"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ralph.loop.scripted", str(script)],
        cwd=place.project,
        input=b"",
        capture_output=True,
        check=True,
        timeout=_TIMEOUT_S,
    )
    stream = place.scratch / "run.jsonl"
    stream.write_bytes(done.stdout)
    run(place, "record", "--feature", FEATURE, str(stream))


def search(place: BenchProject) -> None:
    """Search all features."""
    run(place, "search", _question(), "--kind", "iteration")


def everything(place: BenchProject) -> None:
    """Search every kind of record."""
    run(place, "search", _question())


def iteration(place: BenchProject) -> None:
    """Run one iteration of the loop with the scripted agent, without counting the agent."""
    script = place.scratch / "script.json"
    agent = shlex.join([sys.executable, "-P", "-m", "ralph.loop.scripted", str(script)])
    run(place, "run", "--agent", agent, "--max-iterations", "1", "--json")


def hook(place: BenchProject) -> None:
    """Run the hook that Claude Code calls before each prompt."""
    facts = {
        "session_id": "paths",
        "transcript_path": str(place.scratch / "none.jsonl"),
        "cwd": str(place.project),
        "prompt": _question(),
    }
    run(place, "hook", "user-prompt-submit", stdin=json.dumps(facts))


def mcp(place: BenchProject) -> None:
    """Search over MCP, from the start of the server to its end."""
    command = count(place, "mcp", "--feature", FEATURE)
    with Server(command, cwd=place.project, home=place.home) as server:
        server.shake()
        server.search(_question())
        server.end()


def checkpoint(place: BenchProject) -> None:
    """Publish what a project has staged for all projects."""
    with place.opened() as memory:
        failures = [
            FailureSolution(
                project=memory.project.id,
                failure_description=str(made["task_title"]),
                solution_steps=str(made["summary"]),
            )
            for made in corpus.iterations(0, 3)
        ]
        memory.knowledge.capture_all(failures)
    run(place, "knowledge", "checkpoint")


PATHS: dict[str, Callable[[BenchProject], None]] = {
    "record": record,
    "search": search,
    "everything": everything,
    "iteration": iteration,
    "hook": hook,
    "mcp": mcp,
    "checkpoint": checkpoint,
}


def crossed(what: str) -> CrossedPath:
    """Run one path in a new project and count."""
    with temporary_project(_RECORDS) as place:
        _furnish(place)
        PATHS[what](place)
        counted = json.loads((place.scratch / "crossed.json").read_text(encoding="utf-8"))
    pairs = [(file.replace("\\", "/"), name) for file, name in counted]
    files = tuple(dict.fromkeys(file for file, _ in pairs))
    return CrossedPath(what, files, tuple(f"{file}:{name}" for file, name in pairs))


def main(args: Sequence[str]) -> int:
    """Count every path, and print a table or JSON with every name."""
    parse = parser("paths", __doc__)
    parse.add_argument("--only", choices=PATHS, help="one path instead of all")
    options = parse.parse_args(args)
    found = [crossed(what) for what in PATHS if options.only in (None, what)]
    if options.json:
        return print_json("paths", paths=msgspec.to_builtins(found))
    counts = [
        (one.what, str(len(one.files)), str(len(one.functions)), PATHS[one.what].__doc__ or "")
        for one in found
    ]
    return print_lines(aligned([("path", "files", "functions", ""), *counts]))


def _question() -> str:
    return corpus.queries(1, size=_RECORDS)[0]


def _furnish(place: BenchProject) -> None:
    """Create a feature with records in the index, one task, and the script of an agent."""
    fill(place)
    (place.project / "module.py").write_text("x = 1\n", encoding="utf-8")
    (place.scratch / "script.json").write_text(json.dumps(_SCRIPT), encoding="utf-8")
    plan = Plan(place.project)
    create_feature(plan, FEATURE, {"description": "Finds things by their words."})
    create_task(plan, FEATURE, "Change x", {"description": "Set x to 2 in module.py."})
