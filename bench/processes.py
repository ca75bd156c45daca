"""Fresh processes: how long until one answers, and how much memory it has by then."""

from __future__ import annotations

import statistics
from pathlib import Path

from bench import corpus
from bench.ground import FEATURE, Ground
from bench.measure import (
    Compared,
    fresh,
    in_turns,
    middle_half,
    python,
    ralph_command,
    ratio,
)
from bench.report import NO_TARGET, Row, Target, of_times

_COLD_TARGET_SIZE = 10_000
_VECTOR_BYTES = 256 * 4
_NUMPY = 'python -c "import numpy"'

_SEARCH = """
import sys
from ralph import open_ralph
with open_ralph(sys.argv[1]) as ralph:
    for hit in ralph.feature(sys.argv[2]).search(sys.argv[3]):
        sys.stdout.write(hit.id + "\\n")
"""
_REMEMBER = """
import sys
from ralph import open_ralph
with open_ralph(sys.argv[1]) as ralph:
    ralph.feature(sys.argv[2]).remember({"task_title": sys.argv[3], "summary": sys.argv[3]})
"""
_FIND_BENCH = f"sys.path.append({str(Path(__file__).parent.parent)!r})"
# What a process has before it opens a memory: modules and embedder, not the collection.
_MEMORY = f"""
import sys
from ralph import open_ralph
{_FIND_BENCH}
from bench.measure import memory_bytes
with open_ralph(sys.argv[1]) as ralph:
    ralph.place.embedder.embed_query("ready?")
    before, _ = memory_bytes()
    ralph.feature(sys.argv[2]).search(sys.argv[3])
    sys.stdout.write(" ".join(map(str, (before, *memory_bytes()))))
"""
_NUMPY_MEMORY = f"""
import sys, numpy
{_FIND_BENCH}
from bench.measure import memory_bytes
sys.stdout.write(" ".join(map(str, memory_bytes())))
"""


def version(ground: Ground, repeat: int) -> list[Row]:
    """The command that does nothing but say its version."""
    times = in_turns(
        {
            "ours": fresh([*ralph_command(), "--version"], home=ground.home),
            "reference": fresh(python("pass"), home=ground.home),
        },
        rounds=4 * repeat,
    )
    both = Compared(times["ours"], times["reference"])
    return [of_times("ralph --version", None, both, "python -c pass", target=Target(ratio=2.5))]


def cold(ground: Ground, repeat: int) -> list[Row]:
    """From nothing to the first answer, and to the first record kept."""
    query = corpus.queries(1, size=ground.size)[0]
    where = (str(ground.project), FEATURE, query)
    command = [*ralph_command(), "--project", str(ground.project)]
    times = in_turns(
        {
            "script": fresh(python(_SEARCH, *where), home=ground.home),
            "command": fresh(
                [*command, "search", query, "--feature", FEATURE, "--json"], home=ground.home
            ),
            "remember": fresh(python(_REMEMBER, *where), home=ground.home),
            "reference": fresh(python("import numpy"), home=ground.home),
        },
        rounds=2 * repeat,
    )
    target = Target(ratio=6.0) if ground.size == _COLD_TARGET_SIZE else NO_TARGET
    return [
        of_times(what, ground.size, Compared(times[name], times["reference"]), _NUMPY, target=goal)
        for what, name, goal in (
            ("fresh process to first answer, open_ralph()", "script", target),
            ("fresh process to first answer, ralph search --json", "command", target),
            ("fresh process to first record kept", "remember", NO_TARGET),
        )
    ]


def memory(ground: Ground, repeat: int) -> list[Row]:
    """What a process holds once it has searched; empty where the system does not tell."""
    query = corpus.queries(1, size=ground.size)[0]
    ours = fresh(python(_MEMORY, str(ground.project), FEATURE, query), home=ground.home)
    reference = fresh(python(_NUMPY_MEMORY), home=ground.home)
    told = [[int(one) for one in ours().split()] for _ in range(repeat)]
    plain = statistics.median(int(reference().split()[0]) for _ in range(repeat))
    if not plain:
        return []
    grown = [(after - before) / ground.size for before, after, _ in told]

    def row(what: str, values: list[float], reference: float, reference_is: str) -> Row:
        middle = statistics.median(values)
        return Row(
            what=what,
            size=ground.size,
            unit="bytes/record" if values is grown else "bytes",
            ours=middle,
            reference=reference,
            reference_is=reference_is,
            ratio=ratio(middle, reference),
            spread=middle_half([ratio(one, reference) for one in values]),
            rounds=len(values),
        )

    return [
        row("memory a record, after the first search", grown, _VECTOR_BYTES, "float32 vector"),
        row("memory of that process", [float(one[1]) for one in told], plain, _NUMPY),
        row("memory of that process at its peak", [float(one[2]) for one in told], plain, _NUMPY),
    ]
