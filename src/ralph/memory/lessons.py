"""What a finished task teaches other projects, and how an error was solved before."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ralph.config import Settings
from ralph.memory.ralph import Ralph
from ralph.memory.store import MOST_HITS
from ralph.recall import Hit, event_of, held_in
from ralph.recall.search import Question, conclude
from ralph.records import JournalRecord
from ralph.records.conversation import Exchange
from ralph.records.iteration import TRUNCATED, ErrorSeen, Iteration, Outcome, cut
from ralph.records.knowledge import FailureSolution, Gate, GateApproval, GateRejection
from ralph.text.signature import signature
from ralph.text.summary import sentences

# -- Text for other projects: a path of this machine means nothing there, or some other file.


Told = TypeVar("Told", FailureSolution, Gate, GateApproval, GateRejection)

# Not in the middle of another path; but `-I/home/...` is one of its own.
_BEGINS = r"(?:(?<![\w.~%-])|(?<=\s-[A-Za-z]))"
_ENDS = r"(?:(?P<gap>[\\/]+)(?P<more>(?=[\w.@%+~-]))?|(?![\w%-]|\.\w))"
_CASE = re.IGNORECASE if sys.platform == "win32" else re.NOFLAG
_NAMES = frozenset({"project", "task"})


def portable(told: Told, root: Path) -> Told:
    """The same with paths in the project's folder as seen from there, and in one's home as `~`."""
    texts = {
        name: portable_text(value, root)
        for name in told.__struct_fields__
        if name not in _NAMES and isinstance(value := getattr(told, name), str)
    }
    return msgspec.structs.replace(told, **texts)


def portable_text(text: str, root: Path) -> str:
    """The text with paths in the project's folder as seen from there, and in one's home as `~`."""
    inside, own = _folders(root)
    text = inside.sub(lambda found: "" if found["more"] is not None else "./", text)
    return text if own is None else own.sub(lambda found: "~/" if found["gap"] else "~", text)


@cache
def _folders(root: Path) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    try:
        home = Path.home()
    except RuntimeError:  # nobody knows where it is
        return _pattern(root), None
    return _pattern(root), _pattern(home)


def _pattern(folder: Path) -> re.Pattern[str]:
    """Finds the folder however it is written; the root of a drive is in front of everything."""
    known = [one for one in (folder, folder.resolve()) if one != Path(one.anchor)]
    written = {str(one) for one in known} | {one.as_posix() for one in known}
    written |= {one.replace("\\", "\\\\") for one in written}
    either = "|".join(re.escape(one) for one in sorted(written, key=len, reverse=True))
    return re.compile(f"{_BEGINS}(?:{either or '(?!)'}){_ENDS}", _CASE)


# -- Errors that were met before: how often, and how they were solved if they were.


_CANDIDATES = 50
_ASKED_CHARS = 400
_TRIED = 2
_DECISIONS = 2
# Told again with a little more or less around it, if so much of it is the same.
_LONG_ENOUGH = 25
_FOLDED = re.compile(r"<[a-z]+>")
_WORD = re.compile(r"[^\W\d_]{3,}")
# What stands in every failure, and tells none from another; nor does that a file is not there,
# because its path is folded.
_EMPTY = frozenset(
    """
    error failed failure exit code status with command tool bash the and
    read cannot open access stat such file directory path does exist filenotfounderror
    errno enoent
    """.split()
)


class Solved(msgspec.Struct, frozen=True, kw_only=True):
    """An error that memory has; `solution` is None while nothing shows that it was solved.

    `where` and `id` name the record that shows the solution, else the newest that has the error.
    """

    message: str
    times: int
    last: str
    where: str
    id: str
    solution: str | None = None
    decisions: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


def solved(
    ralph: Ralph,
    message: str,
    *,
    session: str = "",
    feature: str | None = None,
    budget_s: float | None = None,
) -> Solved | None:
    """What this project's memory knows of an error, by its signature; None if it never met it.

    With `feature` that feature alone is asked, and no conversation. That `session` met it without
    solving it is no news to who asks there. Words find the candidates, so nothing heavy is loaded.
    `budget_s` bounds catching up.
    """
    wanted = signature(message)
    if not tells(wanted):
        return None
    asked = Question(message[:_ASKED_CHARS], _CANDIDATES, 0.0, every=True)
    features = ralph.features() if feature is None else [ralph.feature(feature)]
    hits = list(ralph.store.ask(features, asked, meaning=False, budget_s=budget_s))
    if feature is None:
        found = ralph.conversations.candidates(asked, words_only=True, budget_s=budget_s)
        hits += conclude(msgspec.structs.replace(asked, limit=MOST_HITS), [found])
    met = [
        (hit, error)
        for hit in hits
        for error in hit.record.errors
        if same_error(signature(error.message), wanted)
    ]
    met.sort(key=lambda pair: _order(pair[0].record))
    for hit, error in reversed(met):
        if solution := _solution(ralph, hit, error):
            return msgspec.structs.replace(_summed_up(met), **solution)
    elsewhere = [pair for pair in met if not (session and held_in(pair[0].record, session))]
    if not elsewhere:
        return None
    tried = dict.fromkeys(_summary(hit.record) for hit, _ in reversed(elsewhere))
    return msgspec.structs.replace(
        _summed_up(elsewhere), tried=tuple(text for text in tried if text)[:_TRIED]
    )


def _summed_up(met: Sequence[tuple[Hit, ErrorSeen]]) -> Solved:
    """What can be said without a solution; the newest is last."""
    hit, error = met[-1]
    return Solved(
        message=error.message,
        times=len({event_of(one) for one, _ in met}),
        last=_order(hit.record)[0],
        where=_where(hit.record),
        id=hit.id,
    )


def _solution(ralph: Ralph, hit: Hit, error: ErrorSeen) -> dict[str, Any]:
    """How this meeting with the error ended well, as fields of `Solved`; none if nothing shows."""
    if error.resolution:
        return {"solution": error.resolution, "where": _where(hit.record), "id": hit.id}
    later = later_success(ralph, hit.record)
    if later is None:
        return {}
    located, success = later
    decisions = _decisions(success)[:_DECISIONS]
    return {
        "solution": success.summary or decisions.pop(0),
        "decisions": tuple(decisions),
        "where": _where(success),
        "id": located.record.id,
    }


def _decisions(iteration: Iteration) -> list[str]:
    return [
        f"{one.description}: {one.rationale}" if one.rationale else one.description
        for one in iteration.decisions
    ]


def tells(wanted: str) -> bool:
    """Whether the signature says anything by which one failure differs from another."""
    words = {word for word in _WORD.findall(_FOLDED.sub(" ", wanted)) if word not in _EMPTY}
    return len(words) >= 2


def same_error(one: str, other: str) -> bool:
    """Whether two signatures are of the same error, told with more or less around it."""
    if one == other:
        return True
    long_enough = min(len(one), len(other)) > _LONG_ENOUGH
    return long_enough and (one.startswith(other) or other.startswith(one))


def _order(record: Iteration | Exchange) -> tuple[str, int]:
    """When it was, and its number among those of the same moment."""
    if isinstance(record, Iteration):
        return record.timestamp or "", record.iteration_number or 0
    return record.completed or "", record.number or 0


def later_success(
    ralph: Ralph, record: Iteration | Exchange
) -> tuple[JournalRecord, Iteration] | None:
    """The first iteration on the same task that succeeded after this one, which did not."""
    if not isinstance(record, Iteration) or record.task_id is None or record.outcome == "success":
        return None
    for located, one in ralph.feature(record.feature).iterations():
        if (
            str(one.task_id) == str(record.task_id)
            and (one.iteration_number or 0) > (record.iteration_number or 0)
            and one.outcome == "success"
            and (one.summary or one.decisions)
        ):
            return located, one
    return None


def _where(record: Iteration | Exchange) -> str:
    if isinstance(record, Iteration):
        return f"feature {record.feature}, iteration {record.iteration_number}"
    return "a conversation"


def _summary(record: Iteration | Exchange) -> str:
    return record.summary if isinstance(record, Iteration) else record.assistant


MOST = 3
_SENTENCES = 2
_TOLD_CHARS = 500
_SHORTEST = 8
# Tried without success. Where the provider refused, nothing was tried.
_NOT_YET: frozenset[Outcome] = frozenset({"failure", "timeout", "partial"})
# A tool that an agent may not use says nothing about the work.
_NO_LESSON = frozenset({"permission"})


def lessons(
    told: Sequence[Iteration], success: Iteration, *, project: str, technology: str | None = None
) -> list[FailureSolution]:
    """The failures that this success has solved, those met most often first, at most three.

    `told` are the iterations of its feature in their order. What kind of agent it was is left out:
    a discipline's name is a project's own, and an entry without one fits every agent.
    """
    if success.outcome != "success":
        return []
    open_still = [signature(e.message) for e in success.errors if not e.resolution]
    found: list[FailureSolution] = []
    for name, seen in _errors_of_attempts(told, success):
        # The success's own word on how an error was solved counts before that of the others.
        again = [e for e in success.errors if same_error(signature(e.message), name)]
        candidates = [*again, *(error for _, error in reversed(seen))]
        resolution = next((error.resolution for error in candidates if error.resolution), "")
        solution = resolution or _account_of(success)
        if solution and not any(same_error(name, one) for one in open_still):
            attempt, error = seen[-1]
            found.append(
                FailureSolution(
                    project=project,
                    technology=technology or "",
                    subject=success.task_title,
                    failure_description=_description(attempt),
                    error_message=error.message,
                    solution_steps=solution,
                )
            )
    return found[:MOST]


def taught_by(entry: FailureSolution, iteration: Iteration, root: Path) -> bool:
    """Whether a lesson tells what this iteration met, tried or did."""
    resolutions = [error.resolution for error in iteration.errors if error.resolution]
    whole = FailureSolution(
        project=entry.project,
        failure_description=_description(iteration),
        error_message="\n".join(error.message for error in iteration.errors),
        solution_steps="\n".join([_account_of(iteration), *resolutions]),
    )
    made = portable(whole, root)

    def repeats(field: str) -> bool:
        text, source = _plain(getattr(entry, field)), _plain(getattr(made, field))
        begins = field != "failure_description" or source.startswith(text)
        return len(text) >= _SHORTEST and text in source and begins

    return any(map(repeats, ("failure_description", "error_message", "solution_steps")))


def _plain(text: str) -> str:
    return " ".join(text.removesuffix(TRUNCATED).split())


def _errors_of_attempts(
    told: Sequence[Iteration], success: Iteration
) -> list[tuple[str, list[tuple[Iteration, ErrorSeen]]]]:
    """Each error by its signature with the attempts that met it, oldest first; the commonest first.

    Attempts are what was tried before on the same task, since it was done the last time.
    """
    tried: list[Iteration] = []
    for one in told:
        earlier = (one.iteration_number or 0) < (success.iteration_number or 0)
        if str(one.task_id) == str(success.task_id) and earlier:
            if one.outcome == "success":
                tried = []
            elif one.outcome in _NOT_YET:
                tried.append(one)
    found: list[tuple[str, list[tuple[Iteration, ErrorSeen]]]] = []
    for attempt in tried:
        for error in attempt.errors:
            name = signature(error.message)
            if error.error_type in _NO_LESSON or not tells(name):
                continue
            seen = next((seen for known, seen in found if same_error(known, name)), None)
            if seen is None:
                found.append((name, seen := []))
            seen.append((attempt, error))

    def order(met: tuple[str, list[tuple[Iteration, ErrorSeen]]]) -> tuple[int, int]:
        numbers = {attempt.iteration_number or 0 for attempt, _ in met[1]}
        return -len(numbers), -max(numbers)

    return sorted(found, key=order)


def _account_of(success: Iteration) -> str:
    """What the iteration that succeeded says it did, and what it decided."""
    parts = (success.summary, *_decisions(success))
    return "\n".join(part.strip() for part in parts if part.strip())


def _description(attempt: Iteration) -> str:
    """What was being done, and in a sentence or two what came of it."""
    said = " ".join(sentences(" ".join(attempt.summary.split()))[:_SENTENCES])
    parts = [part for part in (attempt.task_title.strip(), cut(said, _TOLD_CHARS)) if part]
    return ": ".join(parts) or f"An attempt that ended in {attempt.outcome}"


# -- What a project is written in, told by the files that its tools need.


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
    found = [
        name
        for name, manifests in _MANIFESTS
        if any(fnmatchcase(file, wanted) for wanted in manifests.split() for file in names)
    ]
    if "typescript" in found and "javascript" in found:
        found.remove("javascript")  # every project in TypeScript has a package.json too
    return ", ".join(found) or None
