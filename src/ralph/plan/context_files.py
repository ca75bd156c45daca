"""Context files: files touched again and again join, files that are gone leave, noise stays out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from ralph.errors import BadInput
from ralph.plan.fields import clean_path
from ralph.plan.model import Data, Feature, Limits, as_list, set_field
from ralph.plan.store import Plan
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
_NOISE_NAMES = {
    "a lock file": r"\.(?:lock|lockb|lockfile)$",
    "build output": r"\.(?:pyc|pyo|class|o|so|dll|dylib|exe|wasm|map|min\.js|min\.css|tsbuildinfo"
    r"|egg-info|log|tmp|bak|swp|orig|rej|snap)$",
    "not a text": r"\.(?:png|jpe?g|gif|ico|webp|pdf|zip|gz|tgz|tar|woff2?|ttf|mp[34])$",
    "configuration": r"^\..*rc(?:\.(?:js|cjs|mjs|json|ya?ml|toml))?$|^\.env(?:\..*)?$|^\.git\w+$"
    r"|^\.(?:editorconfig|dockerignore|npmrc|nvmrc|prettierignore|eslintignore"
    r"|python-version|tool-versions|pre-commit-config\.yaml)$"
    r"|^[\w-]+\.config\.(?:js|cjs|mjs|ts|mts|json)$|^tsconfig\..*\.json$",
}
_OWN_FOLDERS = (".git", ".ralph")


class ContextChanges(msgspec.Struct, frozen=True):
    """What happened to a feature's context files."""

    added: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()


def noise(path: str) -> str | None:
    """Why a path does not join the context files by itself, or None when it may (F33)."""
    pure = PurePosixPath(path.replace("\\", "/"))
    folders = {part.lower() for part in pure.parts[:-1]}
    if found := sorted(folders & _NOISE_FOLDERS):
        return f"inside {found[0]}/"
    if any(part.endswith(".egg-info") for part in folders):
        return "build output"
    name = pure.name
    if name.lower() in _NOISE_FILES:
        return "a lock file" if "lock" in name.lower() or name == "go.sum" else "configuration"
    return next((why for why, names in _NOISE_NAMES.items() if re.search(names, name, re.I)), None)


def enrich(plan: Plan, feature: str, iterations: Iterable[Iteration]) -> ContextChanges:
    """Add files that were touched often and drop those that are gone; people's own files stay."""
    touched: dict[str, tuple[int, int]] = {}  # in how many iterations, and the last of them
    for position, iteration in enumerate(iterations, 1):
        number = iteration.iteration_number or position
        for path in {file.path for file in iteration.files_touched}:
            count, last = touched.get(path, (0, 0))
            touched[path] = (count + 1, max(last, number))
    with plan.edit("features", f"context files of {feature} enriched") as data:
        entry = plan.find(data, "features", feature)
        stale = _drop_vanished(entry, plan)
        items = list(as_list(entry.get("context_files")))
        before = [_path(item) for item in items]
        for item in items:
            if _is_auto(item) and _path(item) in touched:
                item["touch_count"], item["last_touched"] = touched[str(_path(item))]
        for path in sorted(touched, key=lambda path: (-touched[path][0], path)):
            count, last = touched[path]
            if count < Limits.context_after or path in before or noise(path):
                continue
            if is_there(plan.project, path, file=True) and len(path) <= Limits.path:
                items.append(
                    {"path": path, "source": "auto", "touch_count": count, "last_touched": last}
                )
        evicted = evict(items)
        set_field(entry, "context_files", items)
        after = [_path(item) for item in items]
    return ContextChanges(
        tuple(str(path) for path in after if path not in before),
        tuple(path for path in evicted if path in before),
        tuple(stale),
    )


def without_vanished(plan: Plan, feature: Feature) -> tuple[Feature, list[str]]:
    """The feature without files that are gone, and a note for each; the plan does not change."""
    files = [file for file in feature.context_files if is_there(plan.project, file.path)]
    paths = [path for path in feature.knowledge_paths if is_there(plan.project, path)]
    notes = [stale_note(file.path) for file in feature.context_files if file not in files]
    notes += [
        stale_note(path, "knowledge_paths") for path in feature.knowledge_paths if path not in paths
    ]
    if notes:
        feature = msgspec.structs.replace(
            feature, context_files=tuple(files), knowledge_paths=tuple(paths)
        )
    return feature, notes


def drop_vanished(plan: Plan, feature: str) -> list[str]:
    """Take files that are gone out of context and knowledge files; a note for each (F4)."""
    if not without_vanished(plan, plan.feature(feature))[1]:
        return []
    with plan.edit("features", f"vanished files of {feature} removed") as data:
        return _drop_vanished(plan.find(data, "features", feature), plan)


def replace_list(old: Any, value: Any) -> list[Data]:
    """A whole new list from a person; a file that stays keeps its other fields."""
    before = {_path(item): item for item in old} if isinstance(old, list) else {}
    items: list[Any] = []
    for item in [value] if isinstance(value, str) else value:
        plain = item if isinstance(item, Mapping) else {"path": item}
        path = clean_path(plain.get("path"), Limits.path)
        fields = before.get(path)
        fields = fields if isinstance(fields, dict) else {"source": "human"}
        source = plain.get("source", fields.get("source", "human"))
        if source not in ("auto", "human"):
            raise BadInput(f"a context file's source is not {source!r}", todo="Use auto or human.")
        items.append({**fields, "path": path, "source": source})
    evict(items)
    return items


def evict(items: list[Any]) -> list[str]:
    """Take out the least touched of Ralph's own until the list fits; a person's never."""
    gone: list[str] = []
    while len(items) > Limits.context_files:
        own = [i for i, item in enumerate(items) if _is_auto(item)]
        if not own:
            raise BadInput(
                f"`context_files` can have {Limits.context_files} files, and people added them all",
                todo="Remove one first.",
            )
        counts = ("touch_count", "last_touched")
        least = min(own, key=lambda i: (*(_number(items[i], name) for name in counts), i))
        gone.append(str(_path(items.pop(least))))
    return gone


def stale_note(path: str, where: str = "context_files") -> str:
    """The note in a prompt for a file that is gone."""
    return f"[STALE: {path} no longer exists — removed from {where}]"


def _drop_vanished(entry: Data, plan: Plan) -> list[str]:
    notes: list[str] = []
    for name in ("context_files", "knowledge_paths"):
        items = as_list(entry.get(name))
        gone = [
            item for item in items if (path := _path(item)) and not is_there(plan.project, path)
        ]
        if gone:
            notes += [stale_note(str(_path(item)), name) for item in gone]
            set_field(entry, name, [item for item in items if item not in gone])
    return notes


def project_file(root: Path, path: str) -> Path | None:
    """A file that the plan names, for reading: a regular file inside the project, else None.

    A link may lead anywhere, and files in git's and Ralph's own folders are not documents.
    """
    try:
        top = root.resolve()
        file = (top / path).resolve()
        if not file.is_relative_to(top) or not file.is_file():
            return None
        return None if file.relative_to(top).parts[0].lower() in _OWN_FOLDERS else file
    except (OSError, ValueError, RuntimeError):  # the last: links in a circle
        return None


def is_there(project: Path, path: str, *, file: bool = False) -> bool:
    """Whether there is anything (or a file) at this path; no file can have a name that is too long
    or has a NUL in it."""
    try:
        return (project / path).is_file() if file else (project / path).exists()
    except (OSError, ValueError):
        return False


def _path(item: Any) -> str | None:
    path = item.get("path") if isinstance(item, dict) else item
    return path if isinstance(path, str) else None


def _is_auto(item: Any) -> bool:
    return isinstance(item, dict) and item.get("source") == "auto"


def _number(item: Data, name: str) -> int:
    value = item.get(name)
    return value if isinstance(value, int) else 0
