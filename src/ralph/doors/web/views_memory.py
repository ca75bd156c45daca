"""Notes: write, edit and remove them. Inbox: approve rules. Knowledge: publish, rate patterns."""

from __future__ import annotations

from starlette.responses import Response

from ralph.capture.forbidden import shown_target
from ralph.doors.web.page import PageCall, paged
from ralph.errors import BadInput, NotFound
from ralph.memory import inbox
from ralph.memory.replaced import read_replaced, with_replacements
from ralph.recall import Hit
from ralph.recall.kinds import KINDS
from ralph.records import knowledge as schema
from ralph.records.knowledge import knowledge_from
from ralph.records.note import MAX_CHARS, NOTE, Note
from ralph.text.tokens import plural

_CHECKPOINTS = 20
_ACTIONS: dict[str, inbox.Action] = {
    "hold": "hold",
    "ask": "ask",
    "replace": "replace",
    "dismiss": "dismissed",
}
_ANSWERED = {
    "hold": "What the rule forbids is held once a session.",
    "ask": "The client asks you before it does what the rule forbids.",
    "replace": "The older rule is no longer told as current.",
    "dismissed": "Dismissed.",
}


# -- notes


def notes(call: PageCall) -> Response:
    """List the project's notes and the private ones, newest first."""
    text = call.query.get("text", "").casefold()
    feature = call.query.get("feature", "")
    found = [
        one
        for one in _notes(call)
        if text in one.record.text.casefold() and feature in ("", one.record.feature)
    ]
    rows, paging = paged(found, call.number)
    features = sorted({one.name for one in call.plan.read("features").features})
    replaced = call.query.get("replaces", "")
    older = call.memory.get(replaced) if replaced else None
    return call.page(
        "notes.html", rows=rows, paging=paging, features=features, most=MAX_CHARS, older=older
    )


def _notes(call: PageCall) -> list[Hit]:
    own = call.memory.conversations
    found = [hit for hit in call.memory.notes.find("") if hit.kind == NOTE]
    found += [own.stream.hit(one, 0) for one in own.said(NOTE)]
    replaced = read_replaced(call.memory.project)
    found = [with_replacements(hit, replaced) for hit in found]
    return sorted(found, key=lambda hit: hit.at, reverse=True)


def _note(call: PageCall) -> Hit:
    wanted = call.params["id"]
    for hit in _notes(call):
        if hit.id == wanted:
            return hit
    raise NotFound(f"there is no note {wanted!r}", todo="It may be forgotten. Reload the list.")


def write_note(call: PageCall) -> Response:
    """Save a note for the project or for one feature, or a private one."""
    form = call.form
    _, fresh = call.memory.remember(
        form.get("text", ""),
        feature=form.get("feature", ""),
        # A folder that is not a project has only private notes.
        private=bool(form.get("private")) or not call.site.is_project,
        replaces=form.get("replaces", ""),
    )
    return call.done("Saved." if fresh else "A note says this already.", call.back("/notes"))


def edit_note(call: PageCall) -> Response:
    """Show the form to edit a note."""
    return call.page("note_edit.html", note=_note(call).record, most=MAX_CHARS)


def save_note(call: PageCall) -> Response:
    """Save the note with a new text, and forget the old one."""
    before = _note(call)
    text = call.form.get("text", "").strip()
    if text == before.record.text:
        return call.done("Nothing was changed.", "/notes")
    # Save the new one first: if this is interrupted, we have both.
    _remember(call, before, text)
    _forget(call, before, "edited")
    return call.done("Saved.", "/notes", undo=lambda: _unedit(call, before, text))


def remove_note(call: PageCall) -> Response:
    """Forget a note; undo saves it again."""
    note = _note(call)
    _forget(call, note, "removed on the page")

    def restore() -> str:
        _remember(call, note, note.record.text)
        return "The note is back."

    return call.done("Removed, from journal and index.", "/notes", undo=restore)


def _remember(call: PageCall, like: Hit, text: str) -> Note:
    note = like.record
    return call.memory.remember(text, feature=note.feature, private=like.private, by=note.by)[0]


def _forget(call: PageCall, note: Note | Hit, reason: str) -> None:
    from ralph.memory import keeping

    keeping.forget(call.memory, keeping.choose(call.memory, ids=[note.id]), reason=reason)


def _unedit(call: PageCall, before: Hit, text: str) -> str:
    written = _remember(call, before, text)  # returns the existing note, as the text is the same
    _remember(call, before, before.record.text)
    _forget(call, written, "edited")
    return "The note is as it was."


# -- inbox


def rules(call: PageCall) -> Response:
    """List the rules from corrections that wait for an answer, and those in force."""
    checks = inbox.inbox(call.memory, every=bool(call.query.get("all")))
    rows, paging = paged(checks, call.number)
    settings = call.memory.config.settings
    is_on = settings.hook_checks and settings.hook_inject
    return call.page("inbox.html", rows=rows, paging=paging, is_on=is_on, shown=shown_target)


def answer_rule(call: PageCall) -> Response:
    """Hold or ask about what a rule forbids, dismiss it, or let it wait again."""
    name = call.params["id"]
    action = call.params["action"]
    if action == "wait":
        inbox.take_back(call.memory, name)
        return call.done("The rule waits again.", call.back("/inbox"))
    if action not in _ACTIONS:
        raise BadInput("say whether to hold, ask, replace or dismiss")
    chosen = _ACTIONS[action]
    check = inbox.answer(call.memory, name, chosen)

    def undo() -> str:
        inbox.take_back(call.memory, check.id)
        return "The rule waits again."

    return call.done(_ANSWERED[chosen], call.back("/inbox"), undo=undo)


# -- knowledge


def knowledge(call: PageCall) -> Response:
    """Show the entries that wait for approval, the published patterns and the checkpoints."""
    shared = call.memory.knowledge
    patterns, paging = paged(shared.patterns(), call.number)
    return call.page(
        "knowledge.html",
        staged=shared.staged(),
        rows=KINDS,
        gives=shared.gives(call.memory.project.id),
        kinds=schema.CHECKPOINT_KINDS,
        patterns=patterns,
        paging=paging,
        checkpoints=_checkpoints(call)[:_CHECKPOINTS],
    )


def _checkpoints(call: PageCall) -> list[tuple[str, schema.Checkpoint]]:
    """Return the project's checkpoints with their times, newest first."""
    records = [one.record for one in call.memory.knowledge.account().fold.records()]
    found = [(one.at, knowledge_from(one)) for one in records if one.kind == schema.CHECKPOINT]
    return sorted(found, key=lambda pair: pair[0], reverse=True)


def publish(call: PageCall) -> Response:
    """Publish the staged entries to all projects of the user."""
    imported = bool(call.form.get("imported"))
    done = call.memory.knowledge.checkpoint(kind=call.form.get("kind", "manual"), imported=imported)
    if not done.published:
        return call.done(" ".join(["Nothing was published.", *done.notes]), "/knowledge")
    text = f"Published {plural(len(done.published), 'entry', 'entries')}: "
    text += f"{plural(done.new_patterns, 'new pattern')}, {done.joined} joined a known one."
    return call.done(" ".join([text, *done.notes]), "/knowledge")


def report(call: PageCall) -> Response:
    """Save whether a pattern helped."""
    verdict = call.form.get("verdict")
    if verdict not in ("worked", "failed"):
        raise BadInput("say whether it worked or failed")
    pattern = call.memory.knowledge.pattern(call.form.get("pattern", ""))
    call.memory.knowledge.report_outcome(pattern, verdict == "worked", note="said on the page")
    text = "Noted: it helped." if verdict == "worked" else "Noted: it did not help."
    return call.done(text, "/knowledge#patterns")
