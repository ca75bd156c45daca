"""`ralph search`, `recent`, `log`, `failures`, `files`, `show`, `open`, `remember` and `status`."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ralph import disk
from ralph.config import Settings
from ralph.current_run import current_run
from ralph.doors.cli import cards, context, render
from ralph.doors.cli.main import Command
from ralph.doors.cli.render import Cards, Page, Result, Span, Table, excerpt, picked, plain
from ralph.errors import RalphError
from ralph.recall import PERSON, Hit, Scope, run_scope
from ralph.recall.kinds import KINDS, LABELS
from ralph.records.conversation import Exchange
from ralph.text.sanitize import plain_date
from ralph.text.times import local_today, moments_between, time_range
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.conversation_stream import ConversationState
    from ralph.memory.conversations import ProjectCount
    from ralph.memory.ralph import Ralph
    from ralph.memory.status import FeatureCount
    from ralph.records import JournalRecord
    from ralph.records.iteration import Iteration
    from ralph.records.note import Author

_MEMORIES = {
    "conversation": "conversations and private notes",
    "knowledge": "knowledge of all projects",
    "notes": "notes",
    "plan": "learnings and features of the plan",
}
_TITLE_CHARS = 80
_ID = re.compile(r"[0-9a-fA-F]{8}[0-9a-fA-F-]*")
# How many results below the minimum score to explain if there are none above it.
_LEFT_OUT = 3
_NOTHING_YET = "Nothing is in memory here yet."
NO_CONVERSATIONS = (
    "No conversations here yet. Hooks record them (`ralph hooks status` shows where), and `ralph "
    "conversations import` imports earlier ones."
)
CONVERSATION_FIELDS = ("id", "title", "source", "project", "created")

# The options that narrow searches and lists.
narrow = context.options(
    context.feature_option,
    context.choice("--kind", "Only this kind. Repeatable.", LABELS, "kinds", multiple=True),
    context.option("--since", "On this day or later: 2026-02-07, 7d, today.", "DAY"),
    context.option("--until", "On this day or before.", "DAY"),
    context.everywhere_option,
)


def scope_of_caller() -> Scope:
    """Return what may be searched: an agent in its run sees its feature, a user everything."""
    run = current_run()
    return PERSON if run is None else run_scope(run.feature)


# -- search


@click.command(cls=Command)
@click.argument("query", nargs=-1, required=True)
@narrow
@context.flag("--conversations", "Only conversations and documents.")
@context.flag("--knowledge", "Only what all projects published.")
@context.option(
    "--tag", "Only conversations with this tag. Repeatable.", "T", "tags", multiple=True
)
@context.limit_option
@context.min_score_option(
    f"Hide results that score below this (0 to 1, default {Settings().min_score:.2f})."
)
@context.flag("--explain", "Show how each result got its score.")
def search(query: tuple[str, ...], feature: str | None, explain: bool, **given: Any) -> Result:
    """Search everything in memory, by meaning and by words.

    Iterations, notes, learnings, features, conversations, documents and published lessons are
    searched together. Each result says whether it is relevant or only possibly so.

    \b
    Examples:
      ralph search "why does the login test fail?"
      ralph search cookie --feature auth --limit 3
      ralph search "retry policy" --kind conversation --since 7d
    """
    check_sources({"feature": feature, **given})
    _check_days(given)
    text = " ".join(query)
    given["kinds"] += ("conversation", "document") if given.pop("conversations") else ()
    given["kinds"] += ("lesson",) if given.pop("knowledge") else ()
    with context.opened() as ralph:
        names = [memory.name for memory in ralph.features()] if feature else []
        names += context.plan_features() if feature else []
        if given["min_score"] is None:
            given["min_score"] = ralph.config.settings.min_score
        asked = partial(ralph.search, text, scope=scope_of_caller(), **_of(feature))
        answer = cards.located(asked(**given), ralph.project.root)
        notes = list(answer.notes)
        left_out = answer
        if explain and not answer:
            left_out = asked(**given | {"min_score": 0.0, "limit": _LEFT_OUT})
        if given["kinds"] == ("lesson",) and not ralph.config.settings.knowledge_receive:
            notes.append("this project does not use shared knowledge (knowledge_receive is false)")
        floor = f"{given['min_score']:.2f}"
        empty = "" if answer else _why_nothing(ralph, text, floor)
        if not (answer or given["everywhere"]):
            empty = _empty(ralph, empty)
    if feature is not None and feature not in names:
        listed = ", ".join(dict.fromkeys(names)) or "none yet"
        notes.append(f"no feature {feature!r} in memory (features: {listed})")
    value = [cards.hit_json(hit, explain=explain) for hit in answer]
    show = partial(cards.show_hit, explain=explain)

    def show_left_out(page: Page) -> None:
        page.line(empty)
        page.line(f"Left out, because each scores below {floor}:")
        page.line()
        page.show(Cards(left_out, show))

    view = show_left_out if left_out and not answer else Cards(answer, show, empty)
    return Result(value, view, notes=notes)


def _of(feature: str | None) -> dict[str, Any]:
    """Return the argument for the features to search: this one, or all."""
    return {"features": None if feature is None else [feature]}


def _why_nothing(ralph: Ralph, text: str, floor: str) -> str:
    """Say why a search found nothing, and what to do."""
    if _ID.fullmatch(text):
        with contextlib.suppress(RalphError):
            found = ralph.get(text, scope=scope_of_caller()).id[: cards.SHORT_ID]
            return f"{text} is a record: ralph show {found}"
    days = time_range(text, local_today())
    if days and days.alone:
        return f"No results from {days.first if days.first == days.last else 'that time'}."
    return f"No results above {floor}. Try different words or a lower --min-score."


def _check_days(given: dict[str, Any]) -> None:
    """Raise if `--since` is after `--until`."""
    if given["since"] and given["until"]:
        first, end = moments_between(given["since"], given["until"])
        if first >= end:
            raise click.UsageError("--since is after --until.")


def check_sources(given: dict[str, Any]) -> None:
    """Raise if `--feature`, `--conversations` and `--knowledge` are combined."""
    feature = given["feature"] is not None
    conversations = given["conversations"]
    if conversations and feature:
        raise click.UsageError("Conversations belong to no feature: use one of the two options.")
    if given["knowledge"] and (conversations or feature):
        raise click.UsageError("--knowledge cannot be used with --feature or --conversations.")


# -- recent, log, failures, files


@click.command(cls=Command)
@context.option("--count", "How many (default 10).", "N", "--limit", type=click.IntRange(1))
@narrow
def recent(count: int | None, feature: str | None, **given: Any) -> Result:
    """List what happened last: iterations, conversations, notes and learnings.

    \b
    Examples:
      ralph recent --count 5
      ralph recent --kind iteration --feature auth
    """
    from ralph.records.iteration import RECENT_COUNT

    hits, empty = _recent(RECENT_COUNT if count is None else count, feature, given, _NOTHING_YET)
    return _hits(hits, empty)


@click.command(cls=Command)
@narrow
def log(feature: str | None, **given: Any) -> Result:
    """List what was done, one line each, by day.

    Without --since it starts with yesterday.

    \b
    Examples:
      ralph log
      ralph log --since 7d --kind iteration
    """
    nothing = "Nothing in that time."
    if not (given["since"] or given["until"]):
        given["since"] = "1d"
        nothing = "Nothing since yesterday. `ralph log --since 30d` looks further back."
    hits, empty = _recent(1000, feature, given, nothing)

    def show(page: Page) -> None:
        day = ""
        for hit in reversed(hits):
            at = plain_date(hit.at, 16)
            if at[:10] != day:
                day = at[:10]
                page.line((day, "bold"))
            outcome = getattr(hit.record, "outcome", "")
            place = f"  {at[11:]}  {hit.label:12}  "
            text = f"{' ' if outcome else ''}{cards.one_line_of(hit)}"
            page.line(cards.short_id(hit.id), place, cards.styled(outcome), text, indent=2)
        if not hits:
            page.line(empty)

    return Result([cards.hit_json(hit) | {"at": hit.at} for hit in hits], show)


def _recent(
    count: int, feature: str | None, given: dict[str, Any], empty: str
) -> tuple[list[Hit], str]:
    """Return the latest records, and what to say if there are none."""
    _check_days(given)
    with context.opened() as ralph:
        hits = ralph.recent(count, scope=scope_of_caller(), **_of(feature), **given)
        if not (hits or given["everywhere"]):
            empty = _empty(ralph, empty)
        return hits, empty


def _empty(ralph: Ralph, empty: str) -> str:
    """Add to what is said of an empty list where else there is something."""
    return f"{empty} {context.elsewhere(ralph)}".rstrip()


@click.command(cls=Command)
@context.option("--task", "Only attempts at this task.", "ID")
@context.feature_option
@context.everywhere_option
def failures(task: str | None, feature: str | None, everywhere: bool) -> Result:
    """List attempts that failed or timed out, of one feature or of all, newest first.

    Without --feature and --task, also what failed in sessions: exchanges that were broken off, or
    that met an error nobody solved.

    \b
    Examples:
      ralph failures --feature auth --task 42
    """
    from ralph.memory.feature import merged

    with context.opened() as ralph:
        hits = merged(context.memories(ralph, feature), lambda memory: memory.failed_attempts(task))
        if feature is None and task is None:
            hits += [hit for hit in _exchanges(ralph, everywhere) if _failed(hit.record)]
            hits.sort(key=lambda hit: hit.at, reverse=True)
        empty = "No failed attempts in memory here."
        if not (hits or everywhere):
            empty = _empty(ralph, empty)
    return _hits(hits, empty)


def _exchanges(ralph: Ralph, everywhere: bool) -> list[Hit]:
    """Return the exchanges of sessions, newest first, without those that are iterations, too."""
    kinds = ("conversation",)
    hits = ralph.recent(sys.maxsize, kinds=kinds, everywhere=everywhere, scope=scope_of_caller())
    return [hit for hit in hits if isinstance(hit.record, Exchange)]


def _failed(exchange: Exchange) -> bool:
    return exchange.status == "failed" or any(not error.resolution for error in exchange.errors)


def _hits(hits: list[Hit], empty: str) -> Result:
    return Result([cards.hit_json(hit) for hit in hits], Cards(hits, cards.show_hit, empty))


@click.command(cls=Command)
@context.feature_option
@context.everywhere_option
def files(feature: str | None, everywhere: bool) -> Result:
    """List the files that were touched, most touched first.

    These are the files of iterations, of one feature or of all, and without --feature also those of
    sessions.

    \b
    Examples:
      ralph files --feature auth
    """
    with context.opened() as ralph:
        memories = context.memories(ralph, feature)
        sessions = _exchanges(ralph, everywhere) if feature is None else []
        empty = "No files in memory here yet."
        if not (memories or sessions or everywhere):
            empty = _empty(ralph, empty)
    found = [
        plain(file) | {"feature": memory.name} for memory in memories for file in memory.files()
    ]
    found += _files_of(sessions)
    found.sort(key=lambda file: -file["count"])
    several = len({file["feature"] for file in found}) > 1
    heads = ("path", "actions", "times", "last", "where")[: 4 + several]
    rows = [
        [file["path"], ", ".join(file["actions"]), str(file["count"]), *_last_and_where(file)]
        for file in found
    ]
    if not several:
        for file in found:
            del file["feature"]
    shown = [row[: len(heads)] for row in rows]
    return Result(found, Table(heads, shown, empty))


def _files_of(exchanges: Sequence[Hit]) -> list[dict[str, Any]]:
    """Return the files that sessions touched, each with what was done and when last."""
    found: dict[str, dict[str, Any]] = {}
    for hit in exchanges:  # newest first
        for path, actions in _actions(hit.record).items():
            if path not in found:
                latest = {"feature": None, "last": hit.at}
                found[path] = {"path": path, "actions": [], "count": 0, **latest}
            file = found[path]
            file["actions"] += [action for action in actions if action not in file["actions"]]
            file["count"] += 1
    return list(found.values())


def _actions(exchange: Exchange) -> dict[str, list[str]]:
    """Return what an exchange did with each file."""
    done: dict[str, list[str]] = {}
    for file in exchange.files_touched:
        done.setdefault(file.path, []).append(file.action)
    return done


def _last_and_where(file: dict[str, Any]) -> tuple[str, str]:
    """Return when a file was touched last, and by what."""
    if file["feature"] is None:
        return plain_date(file["last"]), "sessions"
    return f"iteration {file['last_iteration']}", file["feature"]


# -- remember


@click.command(cls=Command)
@click.argument("text", metavar="TEXT...|-", nargs=-1, required=True)
@context.feature_option
@context.flag("--private", "Keep it in Ralph's home, not in the project.")
@context.option("--replaces", "The note or exchange that no longer holds.", "ID")
def remember(
    text: tuple[str, ...], feature: str | None, private: bool, replaces: str | None
) -> Result:
    """Save a note that searches and prompts will find.

    It is saved with the project, for everyone who has it, and needs no plan; - is stdin. A private
    note, and one saved outside of a project, is only yours. With --replaces, an older note or what
    you said in an earlier exchange is kept, but no longer told as current.

    \b
    Examples:
      ralph remember "The staging database resets every night."
      ralph remember "Tokens expire after 15 minutes" --feature auth
      ralph remember "Tokens expire after an hour" --replaces 3f9a1c20
    """
    words = " ".join(text)
    if words == "-":
        words = context.text_of(context.read_input(words), context.shown_name(words))
    with context.opened() as ralph:
        alone = private or not ralph.has_project
        by: Author = "agent" if context.in_agents_run() else "human"
        more = {"replaces": replaces} if replaces else {}
        note, fresh = ralph.remember(words, feature=feature or "", private=alone, by=by, **more)
        where = "for you alone" if alone else ralph.saves_to
    done = f"saved {where}" if fresh else "was saved before"
    value = {"id": note.id, "kind": "note", "fresh": fresh, "private": alone, **note.to_json()}
    notes = context.feature_notes(feature)
    return Result(value, lambda page: page.line(cards.short_id(note.id), f"  {done}"), notes=notes)


# -- show and open


# An id that is not in this project is looked up in all of them anyway.
_everywhere_too = click.option("--everywhere", is_flag=True, hidden=True)


@click.command(cls=Command)
@click.argument("record_id", metavar="ID")
@_everywhere_too
def show(record_id: str, everywhere: bool) -> Result:
    """Show one record whole, whatever its kind.

    Any id that Ralph prints will do, in any of your projects. The first four characters are enough
    if they are unique.

    \b
    Examples:
      ralph show 3f9a1c20
    """
    with context.opened() as ralph:
        everywhere = everywhere or _reaches_all()
        return opened(ralph, ralph.get(record_id, everywhere=everywhere, scope=scope_of_caller()))


def _reaches_all() -> bool:
    """Whether the caller may see all projects on this machine: a person, with memory here."""
    return not (context.in_agents_run() or context.server_address())


@click.command("open", cls=Command, json=False)
@click.argument("record_id", metavar="ID")
@_everywhere_too
def open_(record_id: str, everywhere: bool) -> Result:
    """Open one record in your editor or pager.

    A document opens in $EDITOR as the file it is. Everything else is shown as text, in $EDITOR or
    the pager.

    \b
    Examples:
      ralph open 3f9a1c20
    """
    with context.opened() as ralph:
        hit = ralph.get(record_id, everywhere=everywhere or _reaches_all())
        shown = opened(ralph, hit)
        file = ralph.project.root / hit.record.path if hit.kind == "document" else None
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not render.is_terminal(sys.stdout):
        return shown
    if file is not None and disk.exists(file) and editor:
        click.edit(filename=str(file), editor=editor)
    else:
        text = render.page_text(shown.view)
        if editor:
            click.edit(text, editor=editor, extension=".txt")
        else:
            click.echo_via_pager(text)
    return Result(None, "")


def opened(ralph: Ralph, hit: Hit) -> Result:
    """Show a record of any kind with all its details."""
    row = KINDS[hit.kind]
    # Only here are the other entries of a lesson at hand.
    view = None if ralph.remote and row.label == "lesson" else _VIEWS.get(hit.kind)
    if view is not None:
        return view(ralph, hit)

    def show(page: Page) -> None:
        page.line((row.title(hit.record) or hit.label, "bold"))
        page.line((hit.id, "cyan"), "  ", *cards.whereabouts(hit))
        page.lines(row.text(hit.record), indent=0)

    return Result(cards.hit_json(hit), show)


def _gate(ralph: Ralph, hit: Hit) -> Result:
    value = plain(hit.record) | {"id": hit.id, "kind": hit.kind, "at": hit.at}
    return Result(value, lambda page: page.fields(value))


def _talk(ralph: Ralph, hit: Hit) -> Result:
    found = conversation_result(ralph, hit)
    return Result(found.value | cards.hit_json(hit), found.view)


def _entry(ralph: Ralph, hit: Hit) -> Result:
    return cards.entry_result(ralph.knowledge, hit)


def _pattern(ralph: Ralph, hit: Hit) -> Result:
    return cards.pattern_result(ralph.knowledge, hit.record)


def _iteration(ralph: Ralph, hit: Hit) -> Result:
    import msgspec

    found = ralph.feature(hit.record.feature).iterations()
    places = [place for place, _ in found if place.record.id == hit.id]
    place = places[-1]
    several = f"{hit.id} is in the journal with {len(places)} contents; this is the last"
    value = cards.hit_json(hit) | {
        "source": msgspec.to_builtins(place.record.source),
        "journal": {"file": place.file, "line": place.line},
    }
    notes = [several] if len(places) > 1 else []
    return Result(value, lambda page: _show_iteration(page, hit, place), notes=notes)


# The kinds that have more to show than their text.
_VIEWS: dict[str, Callable[[Ralph, Hit], Result]] = {
    "iteration": _iteration,
    "exchange": _talk,
    "conversation": _talk,
    "failure_solution": _entry,
    "gate_rejection": _entry,
    "gate_approval": _entry,
    "pattern": _pattern,
    "gate": _gate,
}


def conversation_result(ralph: Ralph, hit: Hit) -> Result:
    """Show a conversation with its exchanges, or one exchange with its steps."""
    from ralph.memory.conversations import details

    memory = ralph.conversations
    alone = hit.kind == "exchange"
    found = details(memory, **{hit.kind: hit.id}, everywhere=True)
    talk = found.conversation
    texts = found.summaries

    def show(page: Page) -> None:
        page.line((talk.title or f"Conversation of {cards.minute(talk.created)}", "bold"))
        state = cards.current_state(hit) if alone else []
        page.line((talk.id, "cyan"), f"  {talk.source}  {talk.project}", *state)
        if found.tags:
            page.line(("tags ", "dim"), ", ".join(found.tags))
        if whole := memory.summary(talk.id, everywhere=True):
            page.line((f"summary ({whole.by}) ", "dim"), whole.text)
        for exchange in found.exchanges:
            page.line()
            _show_exchange(page, exchange, texts.get(exchange.id, ""), steps=alone)

    about = {"tags": list(found.tags), "summary": texts.get(talk.id, "")}
    exchanges = [each.to_json() | {"summary": texts.get(each.id, "")} for each in found.exchanges]
    return Result({**picked(talk, *CONVERSATION_FIELDS), **about, "exchanges": exchanges}, show)


def conversation_table(talks: list[ConversationState], current: str = "", empty: str = "") -> Table:
    """List conversations, one line each; `current` is the conversation of this chat."""
    rows = []
    for item in talks:
        talk = item.conversation
        words = [excerpt(talk.title, _TITLE_CHARS), *(f"#{tag}" for tag in item.tags)]
        words += ["(this one)"] if talk.id == current else []
        facts = (str(item.exchanges), talk.source, talk.project, " ".join(words))
        rows.append((cards.short_id(talk.id), cards.minute(item.last), *facts))
    heads = ("id", "last", "exchanges", "source", "project", "title")
    return Table(heads, rows, empty or NO_CONVERSATIONS)


def _show_exchange(page: Page, exchange: Exchange, summary: str, *, steps: bool) -> None:
    head = f"{cards.minute(exchange.completed)}  {exchange.id if steps else exchange.id[:8]}"
    page.line((head, "dim"), "  ", cards.styled(exchange.status))
    if summary:
        page.line(("summary ", "dim"), summary)
    for name, text in (("user", exchange.user), ("assistant", exchange.assistant)):
        if text:
            page.line((name, "bold"))
            page.lines(text)
    for step in exchange.messages if steps else ():
        page.line((f"{step.tool or step.role}{' failed' if step.failed else ''}", "magenta"))
        page.lines(step.content)
    cards.show_errors(page, exchange.errors)
    cards.show_files(page, exchange.files_touched)


def _show_iteration(page: Page, hit: Hit, place: JournalRecord) -> None:
    iteration: Iteration = hit.record
    page.line((iteration.task_title or f"Iteration {iteration.iteration_number}", "bold"))
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
@context.everywhere_option
def status(everywhere: bool) -> Result:
    """Show whether memory is working and what's in it.

    With --everywhere, also what each other project has.

    The exit code is 1 if memory is off: the index cannot be used, or the server does not answer.
    """
    from ralph.doors.cli.commands.today import is_recording
    from ralph.memory.pausing import in_force
    from ralph.memory.status import status_sentence

    with context.opened() as ralph:
        found = ralph.status()
        plain_folder = not ralph.has_project
        where = ralph.place
        if plain_folder:
            saves = f"its sessions are saved in {ralph.project.home}"
            if not is_recording(ralph.project.home):
                saves = "no sessions are saved yet: ralph hooks install --user"
            where = f"{ralph.where} is not in a project; {saves}"
        waiting = ralph.waiting
        where += f"; {plural(waiting, 'record')} waiting here for it" if waiting else ""
        paused = in_force(ralph.project.home, ralph.project, folder=str(context.start_folder()))
        beside = {name: count for name, count in found.memories.items() if name != "feature"}
        is_empty = not (found.features or any(count["journalled"] for count in beside.values()))
        projects = ralph.other_projects() if everywhere else None
        elsewhere = context.elsewhere(ralph) if is_empty and not everywhere else ""

    def show(page: Page) -> None:
        page.line((status_sentence(found), "green" if found.available else "bold red"))
        if paused is not None:
            page.line((f"{paused}; nothing is recorded", "yellow"))
        page.line(where)
        if is_empty:
            # A token for one feature gets no counts; if the server is down, they are unknown.
            if elsewhere:
                page.line(f"Nothing is saved for this folder. {elsewhere}")
            elif beside and ralph.is_reached:
                empty = "Memory is empty. Save iterations with: ralph record"
                page.line(NO_CONVERSATIONS if plain_folder else empty)
        else:
            show_counts(page)
        if projects is not None:
            page.line()
            page.show(_project_table(projects))

    def show_counts(page: Page) -> None:
        page.line()
        heads = ("feature", "journaled", "indexed", "state")
        page.show(Table(heads, [_status_row(feature) for feature in found.features]))
        # A server does not count private notes.
        names = _MEMORIES | ({"conversation": "conversations"} if ralph.remote else {})
        for name, one in beside.items():
            if one["journalled"]:
                staged = one.get("staged", 0)
                waiting = f", {staged} waiting for a checkpoint" if staged else ""
                counts = f"{plural(one['journalled'], 'record')}, {one['indexed']} indexed"
                page.line(f"{names[name]}: {counts}{waiting}")

    value = plain(found) | {"paused": paused.since if paused else None, "waiting": waiting}
    if projects is not None:
        value["projects"] = plain(projects)
    return Result(value, show, code=0 if found.available else 1)


def _project_table(projects: Sequence[ProjectCount]) -> Table:
    rows = [
        (
            count.project or "(no project)",
            str(count.conversations),
            str(count.exchanges),
            cards.minute(count.last),
        )
        for count in projects
    ]
    heads = ("other project", "conversations", "exchanges", "last")
    return Table(heads, rows, "No other project has conversations.")


def _status_row(count: FeatureCount) -> tuple[Span, ...]:
    state: Span = ("current", "green")
    if count.waiting:
        state = (f"{count.waiting} waiting for the embedder", "yellow")
    elif not count.current:
        state = ("will be indexed by the next search", "yellow")
    return count.feature, str(count.journalled), str(count.indexed), state
