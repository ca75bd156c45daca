"""What a reader of the package pays, counted: each figure may only fall.

A change that lowers a figure lowers its limit here, too. There are no limits for lines, statements
or tokens, because code that is cheap to count is not always cheap to read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "ralph"
# A function with more ways through it than this is counted.
COMPLEX = 20
MEMORIES = re.compile(r"\b(?:FEATURES|CONVERSATIONS|KNOWLEDGE)\b")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DIVIDES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)


@cache
def modules() -> dict[Path, ast.Module]:
    return {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))
    }


def nodes() -> Iterator[ast.AST]:
    for tree in modules().values():
        yield from ast.walk(tree)


def lines_of(*rooms: str) -> Iterator[str]:
    for path in modules():
        if path.relative_to(PACKAGE).parts[0] in rooms:
            yield from path.read_text(encoding="utf-8").splitlines()


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function without those of the functions that it defines."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, FUNCTIONS):
            yield child
            yield from own_nodes(child)


def ways_through(function: ast.AST) -> int:
    """The cyclomatic complexity: one, and one more for each place where the way divides."""
    ways = 1
    for node in own_nodes(function):
        if isinstance(node, DIVIDES):
            ways += 1
        elif isinstance(node, ast.BoolOp):
            ways += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            ways += 1 + len(node.ifs)
    return ways


def complexities() -> list[int]:
    return [ways_through(node) for node in nodes() if isinstance(node, FUNCTIONS)]


def packed_assignments() -> int:
    """`a, b = x, y`: several thoughts on one line."""
    return sum(
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        for node in nodes()
    )


def complex_functions() -> int:
    return sum(ways > COMPLEX for ways in complexities())


def ways_through_the_worst_function() -> int:
    return max(complexities())


def switches_on_the_memories() -> int:
    """Lines that tell features, conversations and knowledge apart, though memory is one."""
    return sum(bool(MEMORIES.search(line)) for line in lines_of("memory", "doors"))


def remote_checks() -> int:
    """`.remote`: places that ask whether the memory is on a server."""
    return sum(isinstance(node, ast.Attribute) and node.attr == "remote" for node in nodes())


def untyped_arguments() -> int:
    """Functions with `**options: Any`, where the type checker cannot look.

    The command line's own functions get their options from click this way.
    """
    return sum(
        isinstance(node, FUNCTIONS)
        and node.args.kwarg is not None
        and node.args.kwarg.annotation is not None
        and ast.unparse(node.args.kwarg.annotation) == "Any"
        for path, tree in modules().items()
        if path.relative_to(PACKAGE).parts[:2] != ("doors", "cli")
        for node in ast.walk(tree)
    )


@pytest.mark.parametrize(
    ("cost", "most"),
    [
        (packed_assignments, 44),
        (complex_functions, 46),
        (ways_through_the_worst_function, 49),
        (switches_on_the_memories, 64),
        (remote_checks, 15),
        (untyped_arguments, 64),
    ],
)
def test_no_cost_of_reading_rises(cost: Callable[[], int], most: int) -> None:
    counted = cost()
    assert counted <= most, "make the code plainer, or split the function"
    assert counted == most, "it has fallen: lower the limit in this test"


def test_ways_through_a_function_are_counted() -> None:
    function = ast.parse("def f(a, b):\n  if a and b:\n    return [c for c in a if c]\n").body[0]

    assert ways_through(function) == 5
