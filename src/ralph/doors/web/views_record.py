"""One record of any kind with all its details, forgetting, and undo."""

from __future__ import annotations

import contextlib
from typing import Any

from starlette.responses import Response

from ralph.doors.web.page import (
    SHORT_ID,
    PageCall,
    duration,
    money,
    paged,
    tokens_text,
)
from ralph.doors.web.rows import Row, hit_row
from ralph.errors import BadRecord, RalphError
from ralph.memory.activity import RUN
from ralph.memory.blame import blame
from ralph.memory.session_days import committed, short_request
from ralph.memory.timeline import later_success
from ralph.recall import Hit, event_of
from ralph.recall.kinds import KINDS
from ralph.records import Record
from ralph.records.conversation import EXCHANGE, Exchange
from ralph.records.iteration import Iteration
from ralph.text.tokens import plural

_SHOWN = 100
# Fields that a record's page shows elsewhere or not at all.
_SHOWN_APART = frozenset(
    "errors decisions files_touched messages id number timestamp at session_id created"
    " conversation feature outcome iteration_number record task_title".split()
)
_AMOUNTS = {
    "cost_usd": ("cost", money),
    "duration_ms": ("duration", duration),
    "tokens_used": ("tokens", tokens_text),
}
# How to describe the sections of a loop's prompt to the user.
_SHOWN_AS = {
    f"{RUN}warnings": "warning about an earlier error",
    f"{RUN}attempts": "earlier attempt",
}
# Texts that get their own block; the other fields are facts, one per line.
_BLOCKS = frozenset(
    "user assistant summary text description architecture boundaries failure_description"
    " error_message solution_steps human_feedback revision_approach approved_approach problem"
    " solution when_to_try".split()
)


def record(call: PageCall) -> Response:
    """Show one record, by any id that Ralph shows or a prefix of it."""
    hit = call.memory.get(call.params["id"], everywhere=True)
    row = hit_row(hit)
    texts, facts = _fields(hit)
    empty: dict[str, Any] = {"exchanges": [], "entries": [], "links": [], "later": None}
    return call.page(
        "record.html",
        hit=hit,
        row=row,
        title=short_request(hit.record.user) if hit.kind == EXCHANGE else row.title,
        ended=row.outcome or getattr(hit.record, "status", ""),
        texts=texts,
        facts=facts,
        commits=committed(hit.record) if hit.kind == EXCHANGE else (),
        recalls=_recalled(call, hit),
        whole=bool(call.query.get("all")),
        **empty | _particulars(call, hit, texts, facts),
    )


def file(call: PageCall) -> Response:
    """Show which records changed a file, and what was decided about it and broke in it."""
    found = blame(call.memory, call.query.get("path", ""))
    rows, paging = paged(list(found.changes), call.number)
    return call.page("file.html", found=found, rows=rows, paging=paging)


def _fields(hit: Hit) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the texts of a record, and its other fields, one per line."""
    texts: list[tuple[str, str]] = []
    facts: list[tuple[str, str]] = [("id", hit.id), ("kind", hit.kind), ("when", hit.when)]
    for name in hit.record.__struct_fields__:
        value = getattr(hit.record, name)
        if name in _BLOCKS:
            texts += [(name, value)] if value else []
        elif name not in _SHOWN_APART and value not in (None, "", (), [], {}):
            label, write = _AMOUNTS.get(name, (name.replace("_", " "), str))
            shown = ", ".join(map(str, value)) if isinstance(value, tuple | list) else write(value)
            facts.append((label, shown))
    return texts, facts


def _particulars(
    call: PageCall, hit: Hit, texts: list[tuple[str, str]], facts: list[tuple[str, str]]
) -> dict[str, Any]:
    """Return what only some kinds have; may add to `texts` and `facts`."""
    memory = call.memory
    content = hit.record
    if isinstance(content, Iteration):
        for place in memory.feature(content.feature).places(hit.id)[-1:]:
            facts.append(("journal", f"{place.file}:{place.line}"))
            source = place.record.source
            file = f"{source.file}:{source.line}" if source.line else source.file
            facts += [("read from", file)] if file else []
            facts += [("run", source.run)] if source.run else []
        return {"later": later_success(memory, content)}
    if hit.kind in ("conversation", "exchange"):
        from ralph.memory.conversations import details

        found = details(memory.conversations, **{hit.kind: hit.id}, everywhere=True)
        talk = found.conversation
        facts += [("client", talk.source), ("conversation", talk.title or talk.id)]
        facts += [("tags", ", ".join(found.tags))] if found.tags else []
        if summary := found.summaries.get(hit.id):
            texts.insert(0, ("summary", summary))
        if isinstance(content, Exchange):
            return {"links": [(f"/conversations/{talk.id}", "Whole conversation")]}
        return {"exchanges": found.exchanges}
    if hit.kind == "pattern":
        return {"entries": memory.knowledge.entries_of(content)}
    return {}


def _recalled(call: PageCall, hit: Hit) -> list[tuple[Row, str]]:
    """Return the records that the model is known to have got for this, with when and as what."""
    from ralph.memory.stats import recalled_in, told_in

    exchange = hit.record
    activities = told_in(call.memory, exchange) if isinstance(exchange, Iteration) else []
    if isinstance(exchange, Iteration) and (event := event_of(hit)) != hit.id:
        with contextlib.suppress(RalphError):  # the session's own record may be forgotten
            exchange = call.memory.conversations.get(event).record
    if isinstance(exchange, Exchange):
        activities += recalled_in(call.memory, exchange)
    from ralph.memory.uses import uses

    used = {(use.at, use.id): use.used for use in uses(call.memory, activities)}
    recalls: dict[tuple[Row, str], None] = {}
    for recall in activities:
        for identity, _ in recall.shown:
            row = Row("", "record", recall.at, "It has since been forgotten.")
            with contextlib.suppress(RalphError):
                row = hit_row(call.memory.get(identity, everywhere=True))._replace(at=recall.at)
            shown_as = _SHOWN_AS.get(recall.event, "")
            use = {True: "used", False: "not used", None: ""}[used.get((recall.at, identity))]
            recalls[row, ", ".join(filter(None, (shown_as, use)))] = None
    return list(recalls)


# -- forget


def confirm_forget(call: PageCall) -> Response:
    """List everything that would be forgotten with a record, and ask for confirmation."""
    from ralph.memory import keeping

    wanted = call.query.get("id", "")
    choice = keeping.choose(call.memory, ids=[wanted])
    records = keeping.chosen_records(call.memory, choice)
    going = [_going(each) for each in records[:_SHOWN]]
    going += [Row(one.id, "learning", "", one.text) for one in choice.learnings]
    return call.page(
        "forget.html",
        choice=choice,
        going=going,
        more=max(0, len(records) - _SHOWN),
        id=wanted,
    )


def _going(record: Record) -> Row:
    """Return a record for the list; for a small one, such as a tag, only its kind."""
    row = KINDS.of(record.kind)
    if row is None or not row.label:
        return Row(record.id, record.kind, record.at, "")
    text = ""
    with contextlib.suppress(BadRecord):  # one that cannot be read can still be forgotten
        text = row.headline(row.content(record))
    return Row(record.id, row.label, record.at, text)


def forget(call: PageCall) -> Response:
    """Forget a record and everything that depends on it."""
    from ralph.memory import keeping

    wanted = call.form.get("id", "")
    choice = keeping.choose(call.memory, ids=[wanted])
    done = keeping.forget(call.memory, choice, reason=call.form.get("reason") or None)
    text = f"Forgot {plural(done.count, 'record')}, in journal and index."
    if done.copies:
        text += f" Also removed: {', '.join(done.copies)}."
    if done.remains:
        text += f" Still there: {'; '.join(done.remains)}."
    path = call.back("/timeline")
    return call.done(text, "/timeline" if wanted[:SHORT_ID] in path else path)


def undo(call: PageCall) -> Response:
    """Undo an action."""
    return call.undo()
