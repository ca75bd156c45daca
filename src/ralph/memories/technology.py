"""What a project is written in, told by the files that its tools need."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from ralph.config import Settings

# What stands at the root of a project, by the name its people would give to their work.
_MANIFESTS: tuple[tuple[str, str], ...] = (
    ("python", "pyproject.toml setup.py setup.cfg requirements*.txt Pipfile"),
    ("javascript", "package.json"),
    ("typescript", "tsconfig.json deno.json deno.jsonc"),
    ("rust", "Cargo.toml"),
    ("go", "go.mod"),
    ("java", "pom.xml build.gradle build.gradle.kts"),
    ("scala", "build.sbt"),
    ("ruby", "Gemfile *.gemspec"),
    ("php", "composer.json"),
    ("c#", "*.csproj *.sln *.slnx"),
    ("f#", "*.fsproj"),
    ("elixir", "mix.exs"),
    ("erlang", "rebar.config"),
    ("dart", "pubspec.yaml"),
    ("swift", "Package.swift"),
    ("c++", "CMakeLists.txt"),
    ("haskell", "stack.yaml *.cabal"),
    ("clojure", "project.clj deps.edn"),
    ("ocaml", "dune-project"),
    ("zig", "build.zig"),
    ("julia", "Project.toml"),
    ("r", "*.Rproj"),
    ("terraform", "*.tf"),
)


def technology_of(root: Path, settings: Settings) -> str | None:
    """The technologies of the project in this folder, with commas between; None if nothing tells.

    The setting `technology` says it where a person wants to.
    """
    if settings.technology is not None:
        return settings.technology.strip() or None
    try:
        names = [file.name for file in root.iterdir()]
    except OSError:
        return None
    found = [name for name, manifests in _MANIFESTS if _any_of(names, manifests)]
    if "typescript" in found and "javascript" in found:
        found.remove("javascript")  # every project in TypeScript has a package.json too
    return ", ".join(found) or None


def _any_of(names: list[str], manifests: str) -> bool:
    return any(fnmatchcase(name, wanted) for wanted in manifests.split() for name in names)
