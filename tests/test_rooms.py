"""The architecture as a test: which room may import which, and what no room may become."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

RALPH = Path(__file__).parent.parent / "src" / "ralph"

# Each room, and the rooms it may import beside itself and `errors`, which is open to all.
VALUES = {"records"}
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "disk": set(),
    "plugins": set(),
    "state_folders": {"disk"},
    "records": {"text"},
    "text": set(),
    "trust": {"disk"},
    "programs": set(),
    "current_run": set(),
    "config": {"disk", "trust", "plugins"},
    "capture": {*VALUES, "text"},
    "journal": {"records", "disk"},
    "wire": set(),
    "index": {*VALUES, "text", "journal", "disk", "wire", "programs", "plugins"},
    "recall": {*VALUES, "text", "index", "plugins"},
    "plan": {*VALUES, "text", "disk", "state_folders", "current_run"},
    "memory": {
        *VALUES,
        "text",
        "config",
        "capture",
        "clients",
        "journal",
        "index",
        "recall",
        "plan",
        "wire",
        "disk",
        "state_folders",
        "trust",
        "programs",
        "current_run",
    },
    "prompt": {"records", "text", "recall", "plan", "memory"},
    "clients": {*VALUES, "text", "capture", "disk", "programs", "plugins"},
    "loop": {
        *VALUES,
        "text",
        "config",
        "memory",
        "prompt",
        "plan",
        "capture",
        "clients",
        "disk",
        "state_folders",
        "trust",
        "programs",
        "current_run",
    },
    "chat": {
        *VALUES,
        "text",
        "disk",
        "config",
        "wire",
        "memory",
        "prompt",
        "clients",
        "loop",
        "trust",
        "programs",
        "current_run",
    },
}
MAY_IMPORT["doors"] = set(MAY_IMPORT)  # everything, but no door imports another
DOORS = {"cli", "mcp", "hooks", "web", "rest"}

# The front of the house: it may name anything, because it loads things only when they are used.
FRONT = {"__init__", "__main__"}

# Names that say nothing about what is inside.
BANNED = {"utils", "core", "services", "managers", "models", "helpers"}

# What `import ralph` must not load.
HEAVY = {"numpy", "msgspec", "click", "rich", "sqlite3", "tokenizers", "ruamel", "asyncio"}

WIDEST_PORT = 7


def modules(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


@cache
def nodes(source: str) -> list[ast.AST]:
    """Everything in a module's source, parsed once for all the rules."""
    return list(ast.walk(ast.parse(source)))


def dotted(package: Path, module: Path) -> tuple[str, ...]:
    """`src/ralph/index/__init__.py` is ("index",), `src/ralph/records.py` is ("record",)."""
    parts = module.relative_to(package).with_suffix("").parts
    return parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts


def imports(package: Path, module: Path) -> Iterator[tuple[int, str]]:
    """The line and full name of everything imported, at whatever depth and for whatever reason."""
    here = [package.name, *module.relative_to(package).parent.parts]
    for node in nodes(module.read_text(encoding="utf-8")):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield node.lineno, alias.name
            case ast.ImportFrom():
                base = here[: len(here) - node.level + 1] if node.level else []
                for alias in node.names:
                    yield node.lineno, ".".join([*base, *filter(None, [node.module]), alias.name])
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def forbidden(importer: tuple[str, ...], imported: str) -> str | None:
    """Why the module may not import this name, or None where it may."""
    front, _, rest = imported.partition(".")
    if front != "ralph" or importer[0] in FRONT or rest == "__version__":
        return None
    target = rest.split(".")
    room = importer[0]
    if target[0] not in MAY_IMPORT:
        return f"imports {imported} from the front of the house; import it from its own room"
    if target[0] not in MAY_IMPORT[room] | {room, "errors"}:
        return f"{room} may not import {target[0]}"
    if room == target[0] == "doors" and target[1:2] != list(importer[1:2]):
        return f"the door {'.'.join(importer[1:2])} may not import {imported}"
    return None


def breaches(package: Path) -> list[str]:
    """Everything in the package that breaks the table, each with its place."""
    found = []
    for module in modules(package):
        name = dotted(package, module)
        place = module.relative_to(package).as_posix()
        if name[0] not in MAY_IMPORT and name[0] not in FRONT:
            found.append(
                f"{place}: {name[0]} is not a room; add it to the table or move the module"
            )
            continue
        if name[0] == "doors" and len(name) > 1 and name[1] not in DOORS:
            found.append(f"{place}: {name[1]} is not a door")
        found += [f"{place}: the name {part} says nothing" for part in name if part in BANNED]
        for line, imported in imports(package, module):
            if why := forbidden(name, imported):
                found.append(f"{place}:{line}: {why}")
    return found


def test_every_import_keeps_to_the_table() -> None:
    assert breaches(RALPH) == []


def test_the_package_does_not_need_the_benchmarks() -> None:
    for module in modules(RALPH):
        found = [name for _, name in imports(RALPH, module) if name.partition(".")[0] == "bench"]
        assert not found, f"{module} imports {found}, which is not in the wheel"


def test_the_table_has_no_circle() -> None:
    TopologicalSorter({room: may - {room} for room, may in MAY_IMPORT.items()}).prepare()


def test_every_package_says_what_it_is() -> None:
    packages = {module.parent for module in modules(RALPH)}
    silent = [
        package.relative_to(RALPH.parent).as_posix()
        for package in packages
        if not (init := package / "__init__.py").exists()
        or not ast.get_docstring(ast.parse(init.read_text(encoding="utf-8")))
    ]
    assert silent == []


def classes(package: Path) -> Iterator[tuple[str, str, ast.ClassDef]]:
    """The name without its underscore, the module and the definition of every class."""
    for module in modules(package):
        for node in nodes(module.read_text(encoding="utf-8")):
            if isinstance(node, ast.ClassDef):
                yield node.name.lstrip("_"), module.relative_to(package).as_posix(), node


def name_clashes(package: Path) -> dict[str, list[str]]:
    """Class names that more than one class has, each with the modules."""
    found: dict[str, list[str]] = {}
    for name, place, _ in classes(package):
        found.setdefault(name, []).append(place)
    return {name: places for name, places in found.items() if len(places) > 1}


def wide_ports(package: Path) -> dict[str, int]:
    """Protocols with more methods than a port may have; attributes do not count."""
    found = {}
    for name, _, node in classes(package):
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            methods = [
                one
                for one in node.body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
                and not any(ast.unparse(by) == "property" for by in one.decorator_list)
            ]
            if len(methods) > WIDEST_PORT:
                found[name] = len(methods)
    return found


def test_every_class_has_a_name_of_its_own() -> None:
    assert name_clashes(RALPH) == {}


def test_no_port_is_too_wide() -> None:
    assert wide_ports(RALPH) == {}


def test_importing_ralph_loads_nothing_heavy() -> None:
    code = "import ralph, sys; print(*{name.partition('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "ralph" in loaded
    assert loaded & HEAVY == set()


def test_programs_are_looked_up_in_one_place_and_python_never_loads_the_current_folder() -> None:
    # What a shell would find is asked where an agent is told what to type.
    by_hand = {"clients/agents.py"}
    found = {
        f"{module.relative_to(RALPH).as_posix()}: {line.strip()}"
        for module in modules(RALPH)
        for line in module.read_text(encoding="utf-8").splitlines()
        if ("which(" in line and module.relative_to(RALPH).as_posix() not in by_hand)
        or re.search(r"sys\.executable, \"-(m|c)\"", line)
    }
    assert found == set()


# The checks above are only worth something if they can fail.


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("trust.py", "import ralph.journal", "trust may not import journal"),
        ("trust.py", "from ralph import journal", "trust may not import journal"),
        ("trust.py", "from .journal.line import Line", "trust may not import journal"),
        ("text/tokens.py", "from .. import disk", "text may not import disk"),
        ("text/__init__.py", "from ..disk import lock", "text may not import disk"),
        ("recall/search.py", "def f():\n    from ralph.memory import x", "recall may not import"),
        (
            "recall/search.py",
            "if TYPE_CHECKING:\n    import ralph.plan",
            "recall may not import plan",
        ),
        ("index/a.py", "importlib.import_module('ralph.recall')", "index may not import recall"),
        ("journal/a.py", "from ralph import open_ralph", "front of the house"),
        ("journal/a.py", "import ralph.__main__", "front of the house"),
        ("doors/mcp.py", "from ralph.doors.cli.main import cli", "the door mcp may not import"),
        ("doors/cli/run.py", "from ralph.doors import mcp", "the door cli may not import"),
        ("doors/shed.py", "", "shed is not a door"),
        ("attic.py", "", "attic is not a room"),
        ("attic/box.py", "", "attic is not a room"),
        ("index/utils.py", "", "the name utils says nothing"),
        ("plan/core/a.py", "", "the name core says nothing"),
    ],
)
def test_a_breach_is_seen(tmp_path: Path, module: str, source: str, complaint: str) -> None:
    package = tmp_path / "ralph"
    (package / module).parent.mkdir(parents=True)
    (package / module).write_text(source, encoding="utf-8")

    [found] = breaches(package)

    assert found.startswith(module)
    assert complaint in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("trust.py", "from ralph.errors import BadRecord"),
        ("trust.py", "import json, numpy"),
        ("text/tokens.py", "from . import stem"),
        ("text/tokens.py", "from ralph.text.tokens import stem"),
        ("index/manifest.py", "from ralph import __version__"),
        ("__init__.py", "import ralph.memory"),
        ("__main__.py", "def main():\n    from ralph.doors.cli import cli"),
        ("doors/cli/run.py", "from ralph.doors.cli.render import table\nimport ralph.loop"),
        ("doors/cli/run.py", "from .render import table"),
    ],
)
def test_what_the_table_allows_is_no_breach(tmp_path: Path, module: str, source: str) -> None:
    package = tmp_path / "ralph"
    (package / module).parent.mkdir(parents=True)
    (package / module).write_text(source, encoding="utf-8")

    assert breaches(package) == []


def package_of(tmp_path: Path, **modules: str) -> Path:
    package = tmp_path / "ralph"
    package.mkdir()
    for name, source in modules.items():
        (package / f"{name}.py").write_text(source, encoding="utf-8")
    return package


def test_two_classes_of_one_name_are_seen(tmp_path: Path) -> None:
    package = package_of(tmp_path, a="class _Call: ...", b="def f():\n    class Call: ...")
    assert name_clashes(package) == {"Call": ["a.py", "b.py"]}


def test_a_wide_port_is_seen_and_attributes_do_not_count(tmp_path: Path) -> None:
    methods = "".join(f"    def m{n}(self) -> None: ...\n" for n in range(WIDEST_PORT))
    more = "    @property\n    def name(self) -> str: ...\n"
    narrow = f"class Narrow(Protocol):\n{methods}{more}"
    wide = f"class Wide(Protocol):\n{methods}    def last(self) -> None: ...\n"
    assert wide_ports(package_of(tmp_path, a=narrow, b=wide)) == {"Wide": WIDEST_PORT + 1}
