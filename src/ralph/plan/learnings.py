"""Learnings: added, removed and reviewed one at a time, never replaced as a list (F1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ralph.current_run import agents_run
from ralph.errors import BadInput, LearningsFull, NotFound
from ralph.plan.model import Data, Limits, TaskId, as_list, path_of, set_field
from ralph.records import clean_beginning
from ralph.records.iteration import cut
from ralph.records.learning import FIELDS, TRUST, Learning, LearningSource, read_learning, to_plain
from ralph.text.sameness import Verdict, adds, compare, from_signature, gist
from ralph.text.sanitize import folded, sanitize, sanitize_line

if TYPE_CHECKING:  # showing learnings needs no YAML
    from ralph.plan.store import Plan

FULL = "Learnings full - review needed"
_OWN_KEYS = frozenset({*FIELDS, "verified"})


class AddedLearning(msgspec.Struct, frozen=True):
    """The result of adding a learning.

    added: it is new. seen_again: the extractor saw a known one once more. known: a known one says
    the same. reason_added: it had no reason until now. removed_before: somebody removed it, so it
    is not learned again.
    """

    what: Literal["added", "seen_again", "known", "reason_added", "removed_before"]
    learning: Learning
    conflicts: tuple[Learning, ...] = ()
    evicted: Learning | None = None


def add(
    plan: Plan,
    feature: str,
    text: str,
    *,
    source: LearningSource = "agent",
    iteration: int | None = None,
    reason: str | None = None,
    task_id: TaskId | None = None,
) -> AddedLearning:
    """Append one learning. A near-duplicate is not added; a contradiction is, and is returned."""
    new = Learning(text=text, source=source, reason=reason, iteration=iteration, task_id=task_id)
    with plan.edit("features", f"learning added to {feature}") as data:
        return append(plan, data, feature, new)


def learn(
    plan: Plan, feature: str, drafts: Sequence[Learning], *, current_iteration: int
) -> tuple[list[AddedLearning], int]:
    """Add the extractor's drafts: known ones count again, and old learnings are dropped.

    Returns what became of the drafts, and how many had no room.
    """
    added: list[AddedLearning] = []
    refused = 0
    with plan.edit("features", f"{feature} learned from iteration {current_iteration}") as data:
        # Drop what the extractor saw once, long ago; seen more often, it stays as stale (F35).
        entry, items, learnings = _open(plan, data, feature)
        ages = [(age(x, current_iteration) or 0) if _is_weak(x) else 0 for x in learnings]
        left = [item for item, old in zip(items, ages, strict=True) if old <= Limits.dropped_after]
        if len(left) < len(items):
            set_field(entry, "learnings", left)
        for draft in drafts:
            try:
                added.append(append(plan, data, feature, draft))
            except LearningsFull:
                refused += 1
    return added, refused


def remove(
    plan: Plan, feature: str, ref: str | int, *, by: str = "human", reason: str | None = None
) -> Learning:
    """Delete a learning and make sure that the same lesson is not learned again."""
    with plan.edit("features", f"learning removed from {feature}") as data:
        entry, items, learnings = _open(plan, data, feature)
        i = index_of(learnings, ref)
        check_removal(learnings[i])
        # In plain letters, so that look-alike letters do not bring the lesson back.
        words = gist(folded(learnings[i].text)).signature()
        removed: Data = {"words": words, "at": plan.now(), "by": by}
        if reason:
            removed["reason"] = _clean(reason)
        earlier = as_list(entry.get("removed_learnings"))
        entry["removed_learnings"] = [*earlier, removed][-Limits.removed_learnings :]
        # An agent's edit of the file may have left the same one there twice.
        kept = [
            item
            for item, learning in zip(items, learnings, strict=True)
            if learning.id != learnings[i].id
        ]
        set_field(entry, "learnings", kept)
        return learnings[i]


def review(
    plan: Plan, feature: str, ref: str | int, *, text: str | None = None, reason: str | None = None
) -> Learning:
    """Mark a learning as reviewed, perhaps with better words. Reviewed is not proven (F27)."""
    with plan.edit("features", f"learning of {feature} reviewed") as data:
        entry, items, learnings = _open(plan, data, feature)
        i = index_of(learnings, ref)
        _check_review(learnings[i])
        changed: dict[str, Any] = {"reviewed": True}
        if learnings[i].source != "human":  # a person's learning stays theirs
            changed["source"] = "reviewed"
        if text is not None:
            changed["text"] = _clean_text(text)
        if reason is not None:
            changed["reason"] = _clean(reason)
        new = msgspec.structs.replace(learnings[i], **changed)
        items[i] = _merge_item(items[i], new)
        set_field(entry, "learnings", items)
        return new


def check_removal(learning: Learning) -> None:
    """Raise if this is the agent of a task and did not add the learning in its run (F1)."""
    if (run := agents_run()) is None or not run.on_task:
        return
    own = learning.source == "agent" and not learning.reviewed
    if not own or not run.started or (learning.created or "") < run.started:
        raise refused_in_task(
            f"remove the learning {learning.id}, which it did not add in this run"
        )


def _check_review(learning: Learning) -> None:
    """Raise if this is the agent of a task: only a review run or a person confirms (F10, F27)."""
    if (run := agents_run()) is not None and run.on_task:
        raise refused_in_task(f"confirm the learning {learning.id}")


def refused_in_task(what: str) -> BadInput:
    """Return the error for what the agent of a task may not do."""
    todo = "Say in a comment on your task what should change; a review run or a person can do it."
    return BadInput(f"an agent that works on a task may not {what}", todo=todo)


def restore(plan: Plan, feature: str, learning: Learning) -> Learning:
    """Put a learning back as it was before it was removed or reviewed; it may be learned again."""
    with plan.edit("features", f"learning of {feature} restored") as data:
        entry, items, learnings = _open(plan, data, feature)
        was_removed(entry, msgspec.structs.replace(learning, source="human"))  # undoes a removal
        at = next((i for i, one in enumerate(learnings) if one.id == learning.id), None)
        if at is not None:
            items[at] = _merge_item(items[at], learning)
        else:
            _make_room(items, learnings)
            items.append(to_plain(learning))
        set_field(entry, "learnings", items)
        return learning


def index_of(learnings: Sequence[Learning], ref: str | int) -> int:
    """Return the position of a learning, given its id, its text, or its number from 1."""
    for i, learning in enumerate(learnings):
        if isinstance(ref, str) and ref in (learning.id, learning.text):
            return i
    number = int(ref) if isinstance(ref, int) or ref.isdecimal() else 0
    if 1 <= number <= len(learnings):
        return number - 1
    todo = f"Give its id, its text, or a number from 1 to {len(learnings)}."
    raise NotFound(f"no learning {ref!r}", todo=todo if learnings else "The feature has none.")


# -- under the lock


def _open(plan: Plan, data: Data, feature: str) -> tuple[Data, list[Any], list[Learning]]:
    """Return the feature's entry, its raw learnings and the parsed ones; a bad one raises (F36)."""
    entry = plan.find(data, "features", feature)
    value = entry.get("learnings")
    file = plan.document("features")
    path = (*path_of(file.data, "features", feature), "learnings")
    items = [value] if isinstance(value, str) else value or []
    if not isinstance(items, list):
        what = f"`learnings` of {feature!r} is not a list"
        raise BadInput(what, where=file.where(path), todo="Write each learning after a dash.")
    learnings: list[Learning] = []
    for i, item in enumerate(items):
        try:
            learnings.append(read_learning(item))
        except BadInput as error:
            where = file.where((*path, i))
            raise BadInput(error.what, where=where, todo=error.todo) from None
    return entry, list(items), learnings


def append(plan: Plan, data: Data, feature: str, draft: Learning) -> AddedLearning:
    """Like `add`, in features' data that is being edited."""
    entry, items, learnings = _open(plan, data, feature)
    # A script of an agent may call this, too; only people speak for people.
    source = "agent" if draft.source == "human" and agents_run() is not None else draft.source
    new = Learning(
        text=_clean_text(draft.text),
        source=source,
        iteration=draft.iteration,
        created=plan.now(),
        reason=_clean(draft.reason) if draft.reason else None,
        task_id=draft.task_id,
        reviewed=draft.source == "reviewed",
    )
    if was_removed(entry, new):
        return AddedLearning("removed_before", new)
    verdicts = [compare_new(old.text, new.text) for old in learnings]
    if "duplicate" in verdicts:
        i = verdicts.index("duplicate")
        updated = _confirm(learnings[i], new)
        if updated != learnings[i]:
            items[i] = _merge_item(items[i], updated)
            set_field(entry, "learnings", items)
        again = updated.hit_count > learnings[i].hit_count
        if updated.reason and not learnings[i].reason and not again:
            return AddedLearning("reason_added", updated)
        return AddedLearning("seen_again" if again else "known", updated)
    pairs = zip(learnings, verdicts, strict=True)
    rivals = tuple(old for old, verdict in pairs if verdict == "conflict")
    evicted = _make_room(items, learnings)
    items.append(to_plain(new))
    set_field(entry, "learnings", items)
    return AddedLearning("added", new, rivals, evicted)


def compare_new(old: str, new: str) -> Verdict:
    """As `compare`, but a new text that says more than the old one is not its duplicate."""
    verdict = compare(old, new)
    return "unique" if verdict == "duplicate" and adds(gist(old), gist(new)) else verdict


def _confirm(old: Learning, new: Learning) -> Learning:
    """Count the extractor's new evidence, nobody else's (F10); a person's word raises the trust.

    Whoever is trusted as much may say it again with the reason that it lacks (F31).
    """
    if new.reason and not old.reason and TRUST[new.source] >= TRUST[old.source]:
        old = msgspec.structs.replace(old, reason=new.reason)
    if new.source == "auto" and new.iteration is not None:
        last = max(old.last_seen or 0, old.iteration or 0)
        if new.iteration > last:
            task_id = old.task_id if str(old.task_id) == str(new.task_id) else None
            return msgspec.structs.replace(
                old, hit_count=old.hit_count + 1, last_seen=new.iteration, task_id=task_id
            )
    if new.source == "human" and TRUST[old.source] < TRUST["human"]:
        return msgspec.structs.replace(old, source="human")
    return old


def was_removed(entry: Data, new: Learning) -> bool:
    """Return whether somebody removed this lesson; a person who says it again undoes that."""
    removed = as_list(entry.get("removed_learnings"))
    # Also as written: removals saved by earlier versions are not in plain letters.
    gists = [from_signature(gist(text).signature()) for text in {new.text, folded(new.text)}]
    same = [
        item
        for item in removed
        if isinstance(item, dict)
        and isinstance(item.get("words"), str)
        and any(compare(from_signature(item["words"]), about) == "duplicate" for about in gists)
    ]
    if same and new.source == "human":
        entry["removed_learnings"] = [item for item in removed if item not in same]
        return False
    return bool(same)


def _make_room(items: list[Any], learnings: list[Learning]) -> Learning | None:
    """Evict the oldest learning that is auto, unreviewed and seen once, or refuse (F2, F35)."""
    if len(items) < Limits.learnings:
        return None
    own = [i for i, x in enumerate(learnings) if _is_weak(x)]
    if not own:
        raise LearningsFull(FULL, todo="Review or remove some first.")
    oldest = min(own, key=lambda i: (learnings[i].iteration or 0, learnings[i].created or "", i))
    del items[oldest]
    return learnings.pop(oldest)


def _is_weak(learning: Learning) -> bool:
    return is_auto(learning) and learning.hit_count <= 1


def _merge_item(item: Any, learning: Learning) -> Data:
    """Return the item with this learning; its keys that are not Ralph's stay."""
    plain = to_plain(learning)
    before = item if isinstance(item, dict) else {}
    kept = {k: v for k, v in before.items() if k in plain or k not in _OWN_KEYS}
    return {**kept, **plain}


def _clean_text(text: str) -> str:
    plain = _clean(text).strip()
    if not plain:
        raise BadInput("a learning without text", todo="Write what was learned.")
    return plain


def _clean(text: str) -> str:
    return cut(sanitize(clean_beginning(text, Limits.learning)).strip(), Limits.learning)


# -- shown in a prompt: as observations with their provenance (F3, F25)


def is_stale(learning: Learning, current_iteration: int) -> bool:
    """Return whether it is the extractor's, unreviewed, and not confirmed for long (F4)."""
    iterations = age(learning, current_iteration)
    return is_auto(learning) and iterations is not None and iterations > Limits.stale_after


def conflicts(learnings: Sequence[Learning]) -> list[tuple[Learning, Learning]]:
    """Return every pair of learnings that contradict each other."""
    pairs = combinations([(learning, gist(learning.text)) for learning in learnings], 2)
    return [(a, b) for (a, left), (b, right) in pairs if compare(left, right) == "conflict"]


def rivals(learnings: Sequence[Learning]) -> dict[str, list[Learning]]:
    """Return, by the id of each learning, those that contradict it."""
    found: dict[str, list[Learning]] = {learning.id: [] for learning in learnings}
    for left, right in conflicts(learnings):
        found[left.id].append(right)
        found[right.id].append(left)
    return found


def top(learnings: Iterable[Learning], *, task_id: TaskId | None = None) -> list[Learning]:
    """Return those a prompt shows: a person's first, then reviewed, most seen, most trusted.

    A learning about another task is not shown; one about the whole feature may be (F25).
    """

    def rank(x: Learning) -> tuple[bool, bool, int, int, int]:
        return x.source == "human", x.reviewed, x.hit_count, TRUST[x.source], x.iteration or 0

    fitting = (x for x in learnings if x.task_id is None or str(x.task_id) == str(task_id))
    return sorted(fitting, key=rank, reverse=True)[: Limits.learnings_in_prompt]


def prompt_lines(
    learnings: Sequence[Learning], *, current_iteration: int, task_id: TaskId | None = None
) -> list[str]:
    """Return a line for each of the top ones: text, where it came from, what contradicts it."""
    against = rivals(learnings)
    lines = list[str]()
    for learning in top(learnings, task_id=task_id):
        stale = "[STALE] " if is_stale(learning, current_iteration) else ""
        lines.append(f"- {stale}{sanitize_line(learning.text)} {provenance(learning)}")
        for rival in against[learning.id]:
            lines[-1] += f" [conflicts with: {cut(sanitize_line(rival.text), 120)}]"
    return lines


def provenance(learning: Learning) -> str:
    """Return where a learning came from, safe to show."""
    if isinstance(learning.task_id, str):
        clean = sanitize_line(learning.task_id)
        learning = msgspec.structs.replace(learning, task_id=clean)
    return learning.provenance


def is_auto(learning: Learning) -> bool:
    """Return whether the extractor found it and nobody has reviewed it since."""
    return learning.source == "auto" and not learning.reviewed


def age(learning: Learning, current_iteration: int) -> int | None:
    """Return how many iterations ago it was last seen; None if that is unknown."""
    seen = max(learning.last_seen or 0, learning.iteration or 0)
    return current_iteration - seen if seen else None
