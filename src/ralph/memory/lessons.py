"""What a finished task teaches other projects, and how an error was solved before."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

import msgspec

from ralph.capture.rules import pattern
from ralph.capture.solved import ELSEWHERE
from ralph.config import Settings
from ralph.memory.ralph import Ralph
from ralph.memory.store import MOST_HITS
from ralph.recall import event_of
from ralph.recall.search import Question, conclude
from ralph.records.conversation import Exchange
from ralph.records.iteration import TRUNCATED, ErrorSeen, Iteration, Outcome, cut
from ralph.records.knowledge import FailureSolution, Gate, GateApproval, GateRejection
from ralph.text.sentences import sentences
from ralph.text.signature import same_error, signature, tells
from ralph.text.tokens import table, tokens

# -- Text for other projects: a path on this machine means nothing there, or another file.


Told = TypeVar("Told", FailureSolution, Gate, GateApproval, GateRejection)

# Not in the middle of another path, but also after an option as in `-I/home/...`.
_BEGINS = r"(?:(?<![\w.~%-])|(?<=\s-[A-Za-z]))"
_ENDS = r"(?:(?P<gap>[\\/]+)(?P<more>(?=[\w.@%+~-]))?|(?![\w%-]|\.\w))"
_CASE = re.IGNORECASE if sys.platform == "win32" else re.NOFLAG
_NAMES = frozenset({"project", "task"})


def portable(told: Told, root: Path) -> Told:
    """Return it with paths relative to the project's folder, and the home folder as `~`."""
    texts = {
        name: portable_text(value, root)
        for name in told.__struct_fields__
        if name not in _NAMES and isinstance(value := getattr(told, name), str)
    }
    return msgspec.structs.replace(told, **texts)


def portable_text(text: str, root: Path) -> str:
    """Return the text with paths relative to the project's folder, and the home folder as `~`."""
    inside, own = _folders(root)
    text = inside.sub(lambda found: "" if found["more"] is not None else "./", text)
    return text if own is None else own.sub(lambda found: "~/" if found["gap"] else "~", text)


@functools.cache
def _folders(root: Path) -> tuple[re.Pattern[str], re.Pattern[str] | None]:
    try:
        home = Path.home()
    except RuntimeError:  # no home folder
        return _pattern(root), None
    return _pattern(root), _pattern(home)


def _pattern(folder: Path) -> re.Pattern[str]:
    """Match the folder in any spelling, but not a drive's root, which begins every path."""
    known = [one for one in (folder, folder.resolve()) if one != Path(one.anchor)]
    written = {str(one) for one in known} | {one.as_posix() for one in known}
    written |= {one.replace("\\", "\\\\") for one in written}
    either = "|".join(re.escape(one) for one in sorted(written, key=len, reverse=True))
    return re.compile(f"{_BEGINS}(?:{either or '(?!)'}){_ENDS}", _CASE)


# -- Errors seen before: how often, and how they were solved.


_CANDIDATES = 50
_ASKED_CHARS = 400
# Repeated errors: how many are returned, how many runs are read, and after how many runs without
# it an error is overcome.
_MOST_REPEATED = 5
_LOOK_BACK = 300
_OVERCOME_AFTER = 20
_FILE = re.compile(r"[\w.@+-]*(?:/[\w.@+-]+)+\.[A-Za-z]\w{0,7}")
_signature = functools.lru_cache(maxsize=10_000)(signature)


class RepeatedError(msgspec.Struct, frozen=True):
    """A repeated error: in how many runs it was seen, and what solved it the last time.

    `fix` is empty if nothing is known to solve it.
    """

    message: str
    times: int
    fix: str = ""


def repeated_errors(
    runs: Sequence[Sequence[ErrorSeen]], *, least: int = 2, unsolved: bool = False
) -> list[RepeatedError]:
    """Return the most frequent errors, except those not seen for long.

    `runs` has the errors of each iteration or session, oldest first. Errors without a known fix are
    left out unless `unsolved` is set.
    """
    met: dict[str, list[int]] = {}
    newest: dict[str, str] = {}
    fixes: dict[str, str] = {}
    runs = runs[-_LOOK_BACK:]
    for number, errors in enumerate(runs):
        for error in errors:
            name = _signature(error.message)
            if not met.setdefault(name, []) or met[name][-1] != number:
                met[name].append(number)
            newest[name] = error.message
            fixes[name] = error.resolution or fixes.get(name, "")
    often = [
        name
        for name, numbers in met.items()
        if len(numbers) >= least and numbers[-1] >= len(runs) - _OVERCOME_AFTER
    ]
    if not unsolved:
        often = [name for name in often if fixes[name]]
    often.sort(key=lambda name: (-len(met[name]), -met[name][-1]))
    told = [name for name in often if tells(newest[name])][:_MOST_REPEATED]
    return [RepeatedError(newest[name], len(met[name]), fixes[name]) for name in told]


def with_general_fix(mistakes: Iterable[RepeatedError]) -> list[RepeatedError]:
    """Return the mistakes whose fix is not only about the file that the error names.

    What was changed outside the project fixes nothing in it.
    """
    return [
        mistake
        for mistake in mistakes
        if not set(_FILE.findall(mistake.message)) & set(_FILE.findall(mistake.fix))
        and not mistake.fix.startswith(f"Edited {ELSEWHERE}")
    ]


class Solved(msgspec.Struct, frozen=True, kw_only=True):
    """A known error, and what solved it.

    `where` and `id` name the record that has the solution.
    """

    message: str
    times: int
    last: str
    where: str
    id: str
    solution: str


def solved(
    ralph: Ralph,
    message: str,
    *,
    feature: str | None = None,
    file: str | None = None,
    budget_s: float | None = None,
) -> Solved | None:
    """Return how this project solved an error before, by its signature; None if it is unknown.

    With `feature`, only that feature is searched, and no conversations. `file` is the error's: a
    test of this name in another file is another test. Candidates are found by words, so nothing
    heavy is loaded. `budget_s` limits catching up.
    """
    if not tells(message):
        return None
    wanted = signature(message)
    asked = Question(message[:_ASKED_CHARS], _CANDIDATES, 0.0, every=True)
    features = ralph.features() if feature is None else [ralph.feature(feature)]
    hits = list(ralph.store.ask(features, asked, meaning=False, budget_s=budget_s))
    if feature is None:
        found = ralph.conversations.candidates(asked, words_only=True, budget_s=budget_s)
        hits += conclude(msgspec.structs.replace(asked, limit=MOST_HITS), found)
    errors = [(hit, error) for hit in hits for error in hit.record.errors]
    met = [
        pair
        for pair in errors
        if same_error(signature(pair[1].message), wanted) and not _is_other_test(pair[1], file)
    ]
    met.sort(key=lambda pair: _order(pair[0].record))
    for hit, error in reversed(met):
        if error.resolution:
            return Solved(
                message=error.message,
                times=len({event_of(one) for one, _ in met}),
                last=_order(met[-1][0].record)[0],
                where=_where(hit.record),
                id=hit.id,
                solution=error.resolution,
            )
    return None


def _is_other_test(error: ErrorSeen, file: str | None) -> bool:
    return error.error_type == "test" and bool(file and error.file_path) and error.file_path != file


def _order(record: Iteration | Exchange) -> tuple[str, int]:
    """Return a sort key: the time, then the number."""
    if isinstance(record, Iteration):
        return record.timestamp or "", record.iteration_number or 0
    return record.completed or "", record.number or 0


def _where(record: Iteration | Exchange) -> str:
    if isinstance(record, Iteration):
        return f"feature {record.feature}, iteration {record.iteration_number}"
    return "a conversation"


MOST = 3
_SENTENCES = 2
_TOLD_CHARS = 500
_SHORTEST = 8
# Attempts without success. If the provider refused, nothing was attempted.
_NOT_YET: frozenset[Outcome] = frozenset({"failure", "timeout", "partial"})
# A tool that an agent must not use says nothing about the work.
_NO_LESSON = frozenset({"permission"})
# Errors that other projects may get, too, if no file of this one is the cause.
_GENERAL = frozenset({"runtime", "unknown"})


def lessons(
    told: Sequence[Iteration], success: Iteration, *, project: str, technology: str | None = None
) -> list[FailureSolution]:
    """Return up to three failures that a finished task proves solved, the most frequent first.

    `told` are the iterations of its feature, in order. The kind of agent is left out: the name of a
    discipline belongs to one project, and an entry without one fits every agent.
    """
    if success.outcome != "success":
        return []
    found: list[FailureSolution] = []
    for name, seen in _errors_of_attempts(told, success):
        again = [e for e in success.errors if same_error(signature(e.message), name)]
        # If the success met the error again, only its own solution counts.
        candidates = again or [error for _, error in reversed(seen)]
        if solution := next((one.resolution for one in candidates if one.resolution), ""):
            attempt, error = seen[-1]
            lesson = FailureSolution(
                project=project,
                technology=technology or "",
                subject=success.task_title,
                failure_description=_description(attempt),
                error_message=error.message,
                solution_steps=solution,
            )
            found.append(lesson)
    return found[:MOST]


def used(solution: str, iteration: Iteration) -> bool:
    """Return whether an iteration did what a solution says: it has at least half of its words.

    The command that proved the solution is not part of it.
    """
    parts = [iteration.summary, *(file.path for file in iteration.files_touched)]
    parts += [error.resolution or "" for error in iteration.errors]
    parts += [f"{one.description} {one.rationale or ''}" for one in iteration.decisions]
    wanted = set(tokens(solution.partition("; then `")[0]))
    return bool(wanted) and len(wanted & set(tokens("\n".join(parts)))) >= len(wanted) / 2


def taught_by(entry: FailureSolution, iteration: Iteration, root: Path) -> bool:
    """Return whether a lesson repeats what this iteration met, tried or did."""
    # In entries of earlier versions, the solution is a summary with its decisions.
    decisions = [
        f"{one.description}: {one.rationale}" if one.rationale else one.description
        for one in iteration.decisions
    ]
    resolutions = [error.resolution for error in iteration.errors if error.resolution]
    whole = FailureSolution(
        project=entry.project,
        failure_description=_description(iteration),
        error_message="\n".join(error.message for error in iteration.errors),
        solution_steps="\n".join([iteration.summary, *decisions, *resolutions]),
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
    """Return each error's signature with the attempts that met it, the most frequent first.

    Attempts are earlier iterations on the same task, oldest first, since it was last done. An error
    that only the success met counts if it was solved and its cause is not in the project's files.
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
    for attempt in [success, *tried]:
        for error in attempt.errors:
            name = signature(error.message)
            own = error.file_path or error.error_type not in _GENERAL or not error.resolution
            if error.error_type in _NO_LESSON or not tells(error.message):
                continue
            if attempt is success and own:
                continue
            if not _is_general(error):
                continue
            seen = next((seen for known, seen in found if same_error(known, name)), None)
            if seen is None:
                found.append((name, seen := []))
            seen.append((attempt, error))

    def order(met: tuple[str, list[tuple[Iteration, ErrorSeen]]]) -> tuple[int, int]:
        numbers = {attempt.iteration_number or 0 for attempt, _ in met[1]}
        return -len(numbers), -max(numbers)

    return sorted(found, key=order)


def _is_general(error: ErrorSeen) -> bool:
    """Whether an error and its solution mean something elsewhere.

    The path of a file, the folder of a command and an edit of the project's own code do not. An
    edit of a tool's settings does if the solution says why it helped.
    """
    solution = error.resolution or ""
    message = error.message
    if pattern("no message").match(message) or pattern("misplaced").search(message):
        return False
    if pattern("own history").search(message):
        return False
    if pattern("queries").search(solution) or pattern("local fix").search(solution):
        return False
    if not pattern("edited").match(solution):
        return True
    edited = pattern("edited file").findall(solution)
    is_settings = all(pattern("settings").search(file) for file in edited)
    return bool(edited) and is_settings and solution.endswith('"')


def _description(attempt: Iteration) -> str:
    """Return what was being done, and in a sentence or two, what came of it."""
    said = " ".join(sentences(" ".join(attempt.summary.split()))[:_SENTENCES])
    parts = [part for part in (attempt.task_title.strip(), cut(said, _TOLD_CHARS)) if part]
    return ": ".join(parts) or f"An attempt that ended in {attempt.outcome}"


# -- What a project is written in, recognized by the files that its tools need.


def technology_of(root: Path, settings: Settings) -> str | None:
    """Return the technologies of the project in this folder, comma-separated; None if unknown.

    The setting `technology` overrides this.
    """
    if settings.technology is not None:
        return settings.technology.strip() or None
    try:
        names = [file.name for file in root.iterdir()]
    except OSError:
        return None

    def exists(pattern: str) -> bool:
        return any(fnmatchcase(file, pattern) for file in names)

    rows = map(str.split, table(__file__, "technologies.txt")["technologies"])
    found = [name for name, *files in rows if any(map(exists, files))]
    if "typescript" in found and "javascript" in found:
        found.remove("javascript")  # every project in TypeScript has a package.json too
    return ", ".join(found) or None
