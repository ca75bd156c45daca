"""Context files: what is touched again and again joins, what vanished leaves, noise stays out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ralph.errors import BadInput
from ralph.plan import patch as p
from ralph.plan.document import Data
from ralph.plan.store import Plan
from ralph.plan.values import ContextFile, Feature, Limits
from ralph.records.iteration import Iteration

# fmt: off
_NOISE_FILES = frozenset("""
package-lock.json npm-shrinkwrap.json yarn.lock pnpm-lock.yaml bun.lock bun.lockb cargo.lock
poetry.lock pdm.lock uv.lock pipfile.lock gemfile.lock composer.lock podfile.lock mix.lock go.sum
flake.lock packages.lock.json gradle.lockfile pubspec.lock package.resolved
package.json tsconfig.json jsconfig.json pyproject.toml setup.cfg setup.py cargo.toml go.mod gemfile
composer.json requirements.txt pom.xml build.gradle build.gradle.kts settings.gradle makefile
dockerfile docker-compose.yml docker-compose.yaml compose.yaml compose.yml tox.ini pytest.ini
mypy.ini ruff.toml rustfmt.toml clippy.toml deno.json turbo.json nx.json lerna.json babel.config.js
claude.md agents.md license license.md license-mit license-apache changelog.md codeowners .env
procfile manifest.in
""".split())
_NOISE_FOLDERS = frozenset("""
node_modules dist build out target coverage htmlcov __pycache__ venv env site-packages vendor
.git .hg .svn .ralph .claude .codex .venv .tox .nox .cache .next .nuxt .output .svelte-kit .turbo
.parcel-cache .pytest_cache .mypy_cache .ruff_cache .gradle .idea .vscode .github .husky .terraform
.yarn .eggs bin obj tmp temp logs
""".split())
# fmt: on
_NOISE_NAMES = (
    (re.compile(r"\.(?:lock|lockb|lockfile)$", re.I), "a lock file"),
    (
        re.compile(
            r"\.(?:pyc|pyo|class|o|so|dll|dylib|exe|wasm|map|min\.js|min\.css|tsbuildinfo"
            r"|egg-info|log|tmp|bak|swp|orig|rej|snap)$",
            re.I,
        ),
        "build output",
    ),
    (
        re.compile(r"\.(?:png|jpe?g|gif|ico|webp|pdf|zip|gz|tgz|tar|woff2?|ttf|mp[34])$", re.I),
        "no text",
    ),
    (
        re.compile(
            r"^\..*rc(?:\.(?:js|cjs|mjs|json|ya?ml|toml))?$|^\.env(?:\..*)?$|^\.git\w+$"
            r"|^\.(?:editorconfig|dockerignore|npmrc|nvmrc|prettierignore|eslintignore"
            r"|python-version|tool-versions|pre-commit-config\.yaml)$",
            re.I,
        ),
        "configuration",
    ),
    (
        re.compile(r"^[\w-]+\.config\.(?:js|cjs|mjs|ts|mts|json)$|^tsconfig\..*\.json$", re.I),
        "configuration",
    ),
)  # fmt: skip


_OWN_FOLDERS = (".git", ".ralph")


class Enriched(msgspec.Struct, frozen=True):
    """What happened to a feature's context files."""

    added: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


def noise(path: str) -> str | None:
    """Why a path does not belong among context files by itself, or None when it does (F33)."""
    pure = PurePosixPath(path.replace("\\", "/"))
    folders = {part.lower() for part in pure.parts[:-1]}
    if found := sorted(folders & _NOISE_FOLDERS):
        return f"inside {found[0]}/"
    if any(part.endswith(".egg-info") for part in folders):
        return "build output"
    name = pure.name
    if name.lower() in _NOISE_FILES:
        return "a lock file" if "lock" in name.lower() or name == "go.sum" else "configuration"
    return next((why for pattern, why in _NOISE_NAMES if pattern.search(name)), None)


def touched(iterations: Iterable[Iteration]) -> dict[str, tuple[int, int]]:
    """Each path with in how many iterations it was touched, and the last of them."""
    counts: dict[str, tuple[int, int]] = {}
    for position, iteration in enumerate(iterations, 1):
        number = iteration.iteration_number or position
        for path in {file.path for file in iteration.files_touched}:
            count, last = counts.get(path, (0, 0))
            counts[path] = (count + 1, max(last, number))
    return counts


def enrich(plan: Plan, feature: str, iterations: Iterable[Iteration]) -> Enriched:
    """Let what was touched often join and what vanished leave; people's own files stay."""
    counts = touched(iterations)
    with plan.edit("features", f"context files of {feature} enriched") as data:
        entry = plan.find(data, "features", feature)
        stale = _drop_vanished(entry, plan)
        before = [_path(item) for item in _list(entry, "context_files")]
        items = _list(entry, "context_files")
        for item in items:
            if isinstance(item, dict) and item.get("source") == "auto" and _path(item) in counts:
                item["touch_count"], item["last_touched"] = counts[str(_path(item))]
        for path in sorted(counts, key=lambda path: (-counts[path][0], path)):
            count, last = counts[path]
            if count < plan.limits.context_after or path in before or noise(path):
                continue
            if is_file(plan.project, path) and len(path) <= plan.limits.path:
                items.append(
                    {"path": path, "source": "auto", "touch_count": count, "last_touched": last}
                )
        evicted = evict(items, plan.limits)
        p.apply(entry, "context_files", items)
        now_there = [_path(item) for item in items]
    return Enriched(
        tuple(str(path) for path in now_there if path not in before),
        tuple(path for path in evicted if path in before),
        tuple(stale),
    )


def without_vanished(plan: Plan, feature: Feature) -> tuple[Feature, list[str]]:
    """The feature without files that are gone, and a note for each; the plan is left alone."""
    there = {
        path: is_there(plan.project, path)
        for path in [*(file.path for file in feature.context_files), *feature.knowledge_paths]
    }
    if all(there.values()):
        return feature, []
    notes = [stale_note(f.path) for f in feature.context_files if not there[f.path]]
    notes += [
        stale_note(path, "knowledge_paths") for path in feature.knowledge_paths if not there[path]
    ]
    kept = msgspec.structs.replace(
        feature,
        context_files=tuple(file for file in feature.context_files if there[file.path]),
        knowledge_paths=tuple(path for path in feature.knowledge_paths if there[path]),
    )
    return kept, notes


def drop_vanished(plan: Plan, feature: str) -> list[str]:
    """Take files that are gone out of context and knowledge files; a note for each (F4)."""
    if not without_vanished(plan, plan.feature(feature))[1]:
        return []
    with plan.edit("features", f"vanished files of {feature} removed") as data:
        return _drop_vanished(plan.find(data, "features", feature), plan)


def replace_list(old: Any, value: Any, limits: Limits) -> list[Data] | None:
    """A whole new list as a person gives it; what is known of a file that stays is kept."""
    if value is None:
        return None
    known = {_path(item): item for item in old} if isinstance(old, list) else {}
    items: list[Any] = []
    for given in [value] if isinstance(value, str) else value:
        plain = given if isinstance(given, Mapping) else {"path": given}
        path = p.path(plain.get("path"), max_chars=limits.path)
        before = known.get(path)
        kept = before if isinstance(before, dict) else {"source": "human"}
        source = plain.get("source", kept.get("source", "human"))
        if source not in ("auto", "human"):
            raise BadInput(f"a context file's source is not {source!r}", todo="Use auto or human.")
        items.append({**kept, "path": path, "source": source})
    evict(items, limits)
    return items


def evict(items: list[Any], limits: Limits) -> list[str]:
    """Take out the least touched of Ralph's own until the list fits; a person's never."""
    gone: list[str] = []
    while len(items) > limits.context_files:
        own = [i for i, item in enumerate(items) if _is_auto(item)]
        if not own:
            raise BadInput(
                f"`context_files` holds {limits.context_files} files, all added by people",
                todo="Remove one first.",
            )
        least = min(own, key=lambda i: (_number(items[i], "touch_count"),
                                        _number(items[i], "last_touched"), i))  # fmt: skip
        gone.append(str(_path(items.pop(least))))
    return gone


def stale_note(path: str, where: str = "context_files") -> str:
    """What a prompt says of a file that is gone."""
    return f"[STALE: {path} no longer exists — removed from {where}]"


def _drop_vanished(entry: Data, plan: Plan) -> list[str]:
    notes: list[str] = []
    for name in ("context_files", "knowledge_paths"):
        items = _list(entry, name)
        gone = [
            item for item in items if (path := _path(item)) and not is_there(plan.project, path)
        ]
        if gone:
            notes += [stale_note(str(_path(item)), name) for item in gone]
            p.apply(entry, name, [item for item in items if item not in gone])
    return notes


def project_file(root: Path, path: str) -> Path | None:
    """A file that the plan names, to be read: a regular file inside the project, else None.

    A link may lead anywhere, and what lies in git's and Ralph's own folders is nobody's document.
    """
    try:
        top = root.resolve()
        file = (top / path).resolve()
        if not file.is_relative_to(top) or not file.is_file():
            return None
        return None if file.relative_to(top).parts[0].lower() in _OWN_FOLDERS else file
    except (OSError, ValueError, RuntimeError):  # the last: links in a circle
        return None


def _list(entry: Data, name: str) -> list[Any]:
    value = entry.get(name)
    if isinstance(value, str):
        return [value]
    return list(value) if isinstance(value, list) else []


def _path(item: Any) -> str | None:
    path = item.get("path") if isinstance(item, dict) else item
    return ContextFile(path).path if isinstance(path, str) else None


def _is_auto(item: Any) -> bool:
    return isinstance(item, dict) and item.get("source") == "auto"


def _number(item: Data, name: str) -> int:
    value = item.get(name)
    return value if isinstance(value, int) else 0


def is_file(project: Path, path: str) -> bool:
    """Whether this path of the project is a file; a name that no file can have is none."""
    try:
        return (project / path).is_file()
    except (OSError, ValueError):
        return False


def is_there(project: Path, path: str) -> bool:
    """Whether there is anything at this path of the project."""
    try:
        return (project / path).exists()
    except (OSError, ValueError):
        return False
