"""`ralph search`, `recent`, `failures`, `files`, `show` and `status`: look into the memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ralph.current_run import current_run
from ralph.doors.cli import cards, context
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Cards, Page, Result, Span, Table, plain
from ralph.errors import BadInput, NotFound

if TYPE_CHECKING:
    from ralph.memory.feature import FeatureMemory
    from ralph.memory.ralph import Ralph
    from ralph.memory.status import FeatureCount
    from ralph.memory.store import Answer
    from ralph.recall import Hit
    from ralph.records import Located
    from ralph.records.iteration import Iteration

_SHORTEST_ID = 4


# -- search


@click.command(cls=Command)
@click.argument("query", nargs=-1, required=True)
@context.feature_option
@context.flag(
    "--conversations", "Search this project's conversations and documents instead of iterations."
)
@context.flag("--knowledge", "Search what all projects published instead.")
@context.everywhere_option
@context.option("--tag", "With this tag. Repeatable.", "T", "tags", multiple=True)
@context.option("--since", "On this day or later.", "DATE")
@context.option("--until", "On this day or before.", "DATE")
@context.limit_option
@context.min_score_option("Hide results that score below this (0 to 1, default 0.40).")
@context.flag("--explain", "Show how each result got its score.")
def search(
    query: tuple[str, ...],
    feature: str | None,
    limit: int | None,
    min_score: float | None,
    explain: bool,
    **given: Any,
) -> Result:
    """Search the memory by meaning and by words.

    A result that scores 0.55 or more is relevant; one between 0.40 and 0.55 is possibly so.
    --everywhere, --tag, --since and --until work with --conversations.

    \b
    Examples:
      ralph search "why does the login test fail?"
      ralph search cookie --feature auth --limit 3
      ralph search "retry policy" --conversations --since 2026-01-01
    """
    check_sources({"feature": feature, **given})
    conversations, knowledge = given.pop("conversations"), given.pop("knowledge")
    if any(given.values()) and not conversations:
        raise click.UsageError("--everywhere, --tag, --since, --until need --conversations.")
    words = " ".join(query)
    with context.opened(anywhere=conversations or knowledge) as ralph:
        names = [memory.name for memory in ralph.features()]
        floor = ralph.store.settings.min_score if min_score is None else min_score
        if conversations:
            # Documents have no tags and no day.
            documents = not (given["tags"] or given["since"] or given["until"])
            answer = ralph.conversations.search(
                words, limit=limit, min_score=floor, documents=documents, **given
            )
            answer = cards.located(answer, ralph.project.root)
        elif knowledge:
            answer = _search_knowledge(ralph, words, limit, floor)
        else:
            features = None if feature is None else [feature]
            answer = ralph.search(words, features=features, limit=limit, min_score=floor)
    notes = list(answer.notes)
    if feature is not None and feature not in names:
        known = ", ".join(names) or "none yet"
        notes.append(f"no feature {feature!r} in memory (features: {known})")
    empty = f"No results above {floor:.2f}. Try different words or a lower --min-score."
    show = partial(cards.show_entry if knowledge else cards.show_hit, explain=explain)
    value = [cards.hit_json(hit, explain=explain) for hit in answer]
    return Result(value, Cards(answer, show, empty), notes=notes)


def check_sources(given: dict[str, Any]) -> None:
    """Refuse `--feature`, `--conversations` and `--knowledge` together."""
    feature, conversations = given["feature"] is not None, given["conversations"]
    if conversations and feature:
        raise click.UsageError("Conversations belong to no feature: use one of the two options.")
    if given["knowledge"] and (conversations or feature):
        raise click.UsageError("--knowledge cannot be used with --feature or --conversations.")


def _search_knowledge(ralph: Ralph, words: str, limit: int | None, floor: float) -> Answer:
    """The published entries; nothing in a project that wants none."""
    from ralph.memory.store import Answer

    if not ralph.config.settings.knowledge_receive:
        return Answer(notes=("this project receives no knowledge: knowledge_receive is false",))
    return ralph.knowledge.search(words, limit=limit, min_score=floor)


# -- recent, failures, files


@click.command(cls=Command)
@context.option("--count", "How many (default 10).", "N", type=click.IntRange(1))
@context.feature_option
def recent(count: int | None, feature: str | None) -> Result:
    """List the newest iterations, of one feature or of all.

    \b
    Examples:
      ralph recent --count 5
    """
    from ralph.records.iteration import RECENT_COUNT

    with context.opened() as ralph:
        wanted = RECENT_COUNT if count is None else count
        hits = _found(ralph, feature, lambda memory: memory.recent(wanted))[:wanted]
    return _hits(hits, "Nothing is in memory here yet.")


@click.command(cls=Command)
@context.option("--task", "Only attempts at this task.", "ID")
@context.feature_option
def failures(task: str | None, feature: str | None) -> Result:
    """List attempts that failed or timed out, of one feature or of all, newest first.

    \b
    Examples:
      ralph failures --feature auth --task 42
    """
    with context.opened() as ralph:
        hits = _found(ralph, feature, lambda memory: memory.failed_attempts(task))
    return _hits(hits, "No failed attempts in memory here.")


def _found(
    ralph: Ralph, feature: str | None, find: Callable[[FeatureMemory], list[Hit]]
) -> list[Hit]:
    from ralph.memory.feature import merged

    return merged(context.memories(ralph, feature), find)


def _hits(hits: list[Hit], empty: str) -> Result:
    return Result([cards.hit_json(hit) for hit in hits], Cards(hits, cards.show_hit, empty))


@click.command(cls=Command)
@context.feature_option
def files(feature: str | None) -> Result:
    """List the files that iterations touched, most touched first.

    \b
    Examples:
      ralph files --feature auth
    """
    with context.opened() as ralph:
        memories = context.memories(ralph, feature)
        if len(memories) > 1:
            names = ", ".join(memory.name for memory in memories)
            todo = "Choose one with --feature NAME."
            raise BadInput(f"this project has {len(memories)} features ({names})", todo=todo)
        found = [file for memory in memories for file in memory.files()]
    heads = ("path", "actions", "iterations", "last")
    rows = [(f.path, ", ".join(f.actions), str(f.count), str(f.last_iteration)) for f in found]
    return Result(found, Table(heads, rows, "No files in memory here yet."))


# -- show


@click.command(cls=Command)
@click.argument("record_id", metavar="ID")
def show(record_id: str) -> Result:
    """Show one record.

    It may be an iteration, an exchange of a conversation, an entry of knowledge, a pattern or a
    gate. The first four characters of an ID are enough if they are unique.

    \b
    Examples:
      ralph show 3f9a1c20
    """
    import msgspec

    run = current_run()
    with context.opened() as ralph:
        try:
            own = run.feature if run else None
            hit = ralph.get(record_id, features=None if own is None else [own])
        except NotFound:
            # An agent has no access to conversations and knowledge.
            found = None if run else _other(ralph, record_id)
            if found is None:
                raise
            return found
        places = [
            place
            for memory in ralph.features()
            for place, _ in memory.iterations()
            if place.record.id == hit.id
        ]
    place = places[-1]
    several = f"{hit.id} is in the journal with {len(places)} contents; this is the last"
    value = cards.hit_json(hit) | {
        "source": msgspec.to_builtins(place.record.source),
        "journal": {"file": place.file, "line": place.line},
    }
    notes = [several] if len(places) > 1 else []
    return Result(value, lambda page: _show_iteration(page, hit, place), notes=notes)


def _other(ralph: Ralph, wanted: str) -> Result | None:
    """An exchange, an entry of knowledge, a pattern or a gate."""
    from ralph.memory.gates import gates

    with contextlib.suppress(NotFound):
        hit = ralph.conversations.get(wanted)
        return Result(cards.hit_json(hit), lambda page: cards.show_hit(page, hit))
    knowledge = ralph.knowledge
    if len(wanted) < _SHORTEST_ID or not knowledge.store.names():
        return None
    with contextlib.suppress(NotFound):
        return cards.entry_result(knowledge, knowledge.get(wanted))
    with contextlib.suppress(NotFound):
        return cards.pattern_result(knowledge, knowledge.pattern(wanted))
    waiting = [gate for gate in gates(ralph) if gate.id.startswith(wanted.lower())]
    if len(waiting) != 1:
        return None
    value = {"kind": "gate", **waiting[0].to_json()}
    return Result(value, lambda page: page.fields(value))


def _show_iteration(page: Page, hit: Hit, place: Located) -> None:
    iteration: Iteration = hit.record
    page.line((iteration.task_title or "(no title)", "bold"))
    page.line((hit.id, "cyan"))
    page.line(*cards.whereabouts(hit))
    source = place.record.source
    line = "" if source.line is None else f":{source.line}"
    origin = f", from {source.file}{line}" if source.file else ""
    origin += f", run {source.run}" if source.run else ""
    page.line(("source ", "dim"), f"{place.file}:{place.line}{origin}")
    page.lines(iteration.summary)
    cards.show_errors(page, iteration.errors)
    for decision in iteration.decisions:
        why = f" (because: {decision.rationale})" if decision.rationale else ""
        page.line(("decision ", "blue"), decision.description, why)
    cards.show_files(page, iteration.files_touched)
    numbers = {
        "discipline": iteration.discipline,
        "model": iteration.model,
        "tier": iteration.model_tier,
        "tokens": iteration.tokens_used,
        "cost": None if iteration.cost_usd is None else f"{iteration.cost_usd:g} USD",
        "duration": None if iteration.duration_ms is None else f"{iteration.duration_ms} ms",
    }
    facts = [f"{name} {value}" for name, value in numbers.items() if value not in (None, "")]
    if facts:
        page.line((" | ".join(facts), "dim"))


# -- status


@click.command(cls=Command)
def status() -> Result:
    """Show whether memory is working and what's in it."""
    from ralph.memory.pausing import in_force
    from ralph.memory.status import status as look

    with context.opened() as ralph:
        found = look(ralph)
        root = ralph.project.root
        paused = in_force(ralph.store.home, ralph.project)

    def show(page: Page) -> None:
        page.line((found.line, "green" if found.available else "bold red"))
        if paused is not None:
            page.line((f"{paused}; nothing is recorded", "yellow"))
        page.line(f"project {root}")
        said, knowledge = found.memories["conversation"], found.memories["knowledge"]
        if not (found.features or said["journalled"] or knowledge["journalled"]):
            page.line("Memory is empty. Save iterations with: ralph record")
            return
        page.line()
        heads = ("feature", "journalled", "indexed", "state")
        page.show(Table(heads, [_status_row(feature) for feature in found.features]))
        counts = "{journalled} journalled, {indexed} indexed"
        if said["journalled"]:
            page.line(f"conversations: {counts.format_map(said)}")
        if knowledge["journalled"]:
            staged = knowledge["staged"]
            waiting = f", {staged} waiting for a checkpoint" if staged else ""
            page.line(f"knowledge of all projects: {counts.format_map(knowledge)}{waiting}")

    value = plain(found) | {"paused": paused.since if paused else None}
    return Result(value, show)


def _status_row(count: FeatureCount) -> tuple[Span, ...]:
    state: Span = ("current", "green")
    if count.waiting:
        state = (f"{count.waiting} waiting for the embedder", "yellow")
    elif not count.current:
        state = ("will be indexed by the next search", "yellow")
    return count.feature, str(count.journalled), str(count.indexed), state
