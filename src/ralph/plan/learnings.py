"""Learnings: appended, removed and reviewed one at a time, never replaced as a list (F1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ralph.errors import BadInput, LearningsFull, NotFound
from ralph.kinds.iteration import cut
from ralph.kinds.learning import FIELDS, TRUST, Learning, LearningSource, read_learning, to_plain
from ralph.plan.document import Data, Document
from ralph.plan.entities import path_of
from ralph.plan.extract import Draft
from ralph.plan.shown import age, is_auto
from ralph.plan.store import Plan
from ralph.plan.values import Limits, TaskId
from ralph.text.lookalikes import folded
from ralph.text.redact import redact
from ralph.text.sameness import compare, from_signature, gist
from ralph.text.sanitise import sanitise

FULL = "Learnings full - review needed"
_OWN_KEYS = frozenset({*FIELDS, "verified"})


class Added(msgspec.Struct, frozen=True):
    """What became of a learning that was given.

    added: it is new. seen_again: the extractor saw a known one once more. known: it says what is
    known already. removed_before: somebody removed it, so it is not learned again.
    """

    what: Literal["added", "seen_again", "known", "removed_before"]
    learning: Learning
    conflicts: tuple[Learning, ...] = ()
    evicted: Learning | None = None


class Learned(msgspec.Struct, frozen=True):
    """What an iteration's drafts became, and how many found no room."""

    added: tuple[Added, ...] = ()
    refused: int = 0
    dropped: tuple[Learning, ...] = ()


def add(
    plan: Plan,
    feature: str,
    text: str,
    *,
    source: LearningSource = "agent",
    iteration: int | None = None,
    reason: str | None = None,
    task_id: TaskId | None = None,
) -> Added:
    """Append one learning; a near-duplicate is not added, a contradiction is, and is named."""
    draft = Draft(text=text, reason=reason, iteration=iteration, task_id=task_id)
    with plan.edit("features", f"learning added to {feature}") as data:
        return append(plan, data, feature, draft, source)


def learn(plan: Plan, feature: str, drafts: Sequence[Draft], *, current_iteration: int) -> Learned:
    """What the extractor found: new ones join, known ones count again, old ones are dropped."""
    added: list[Added] = []
    refused = 0
    with plan.edit("features", f"{feature} learned from iteration {current_iteration}") as data:
        dropped = _drop_old(plan, data, feature, current_iteration)
        for draft in drafts:
            try:
                added.append(append(plan, data, feature, draft, "auto"))
            except LearningsFull:
                refused += 1
    return Learned(tuple(added), refused, tuple(dropped))


def remove(
    plan: Plan, feature: str, ref: str | int, *, by: str = "human", reason: str | None = None
) -> Learning:
    """Take a learning out and see to it that the same lesson is not learned again."""
    with plan.edit("features", f"learning removed from {feature}") as data:
        entry, items, learnings = _opened(plan, data, feature)
        i = index_of(learnings, ref)
        # In plain letters: look-alikes do not bring the lesson back.
        words = gist(folded(learnings[i].text)).signature()
        stone: Data = {"words": words, "at": plan.now(), "by": by}
        if reason:
            stone["reason"] = _reason(reason, plan.limits)
        stones = entry.get("removed_learnings")
        stones = stones if isinstance(stones, list) else []
        entry["removed_learnings"] = [*stones, stone][-plan.limits.removed_learnings :]
        del items[i]
        _keep(entry, items)
        return learnings[i]


def review(
    plan: Plan, feature: str, ref: str | int, *, text: str | None = None, reason: str | None = None
) -> Learning:
    """Note that a reviewer looked at it, perhaps in better words. Reviewed is not proven (F27)."""
    with plan.edit("features", f"learning of {feature} reviewed") as data:
        entry, items, learnings = _opened(plan, data, feature)
        i = index_of(learnings, ref)
        old = learnings[i]
        # What a person said stays theirs; anything else now stands on the review.
        changed: dict[str, Any] = {"reviewed": True}
        if old.source != "human":
            changed["source"] = "reviewed"
        if text is not None:
            changed["text"] = _clean(text, plan.limits)
        if reason is not None:
            changed["reason"] = _reason(reason, plan.limits)
        new = msgspec.structs.replace(old, **changed)
        items[i] = _merged(items[i], new)
        _keep(entry, items)
        return new


def index_of(learnings: Sequence[Learning], ref: str | int) -> int:
    """Which learning is meant: by id, by its text, or by its number from 1."""
    for i, learning in enumerate(learnings):
        if isinstance(ref, str) and ref in (learning.id, learning.text):
            return i
    number = int(ref) if isinstance(ref, int) or ref.isdecimal() else 0
    if 1 <= number <= len(learnings):
        return number - 1
    raise NotFound(
        f"no learning {ref!r}",
        todo=f"Give its id, its text, or a number from 1 to {len(learnings)}."
        if learnings
        else "The feature has none.",
    )


# -- under the lock


def _opened(plan: Plan, data: Data, feature: str) -> tuple[Data, list[Any], list[Learning]]:
    """The feature's entry, its raw learnings and what they mean; a malformed one raises (F36)."""
    entry = plan.find(data, "features", feature)
    found = entry.get("learnings")
    items = [found] if isinstance(found, str) else found
    if items is not None and not isinstance(items, list):
        raise BadInput(
            f"`learnings` of {feature!r} is not a list",
            where=_where(plan, feature),
            todo="Write each learning behind a dash.",
        )
    items = list(items or [])
    learnings = []
    for i, item in enumerate(items):
        if not isinstance(item, str):
            try:
                learnings.append(read_learning(item, max_chars=plan.limits.learning))
            except BadInput as error:
                where = _where(plan, feature, i)
                raise BadInput(error.what, where=where, todo=error.todo) from None
        else:
            learnings.append(read_learning(item, where=_where(plan, feature, i)))
    return entry, items, learnings


def _where(plan: Plan, feature: str, *steps: int) -> str:
    document: Document = plan.document("features")
    return document.where((*path_of(document.data, "features", feature), "learnings", *steps))


def append(plan: Plan, data: Data, feature: str, draft: Draft, source: LearningSource) -> Added:
    """As `add`, in the features' data of an edit that is under way."""
    entry, items, learnings = _opened(plan, data, feature)
    new = Learning(
        text=_clean(draft.text, plan.limits),
        source=source,
        iteration=draft.iteration,
        created=plan.now(),
        reason=_reason(draft.reason, plan.limits) if draft.reason else None,
        task_id=draft.task_id,
        reviewed=source == "reviewed",
    )
    about = gist(new.text)
    if was_removed(entry, new, plan.limits):
        return Added("removed_before", new)
    against: list[Learning] = []
    for i, old in enumerate(learnings):
        verdict = compare(gist(old.text), about, threshold=plan.limits.similar)
        if verdict == "conflict":
            against.append(old)
        if verdict != "duplicate":
            continue
        known = _seen_again(old, new)
        if known == old:
            return Added("known", old)
        items[i] = _merged(items[i], known)
        _keep(entry, items)
        return Added("seen_again" if known.hit_count > old.hit_count else "known", known)
    evicted = make_room(items, learnings, plan.limits)
    items.append(to_plain(new))
    _keep(entry, items)
    return Added("added", new, tuple(against), evicted)


def _seen_again(old: Learning, new: Learning) -> Learning:
    """Only the extractor's new evidence counts (F10); a person's word lifts the trust."""
    if new.source == "auto" and new.iteration is not None:
        last = max(old.last_seen or 0, old.iteration or 0)
        if new.iteration > last:
            wider = old.task_id if str(old.task_id) == str(new.task_id) else None
            return msgspec.structs.replace(
                old, hit_count=old.hit_count + 1, last_seen=new.iteration, task_id=wider
            )
    if new.source == "human" and TRUST[old.source] < TRUST["human"]:
        return msgspec.structs.replace(old, source="human")
    return old


def was_removed(entry: Data, new: Learning, limits: Limits) -> bool:
    """Whether somebody removed this lesson; a person who says it again takes that back."""
    stones = entry.get("removed_learnings")
    if not isinstance(stones, list):
        return False
    # As it is written too: stones of earlier versions are not in plain letters.
    about = [from_signature(gist(one).signature()) for one in {new.text, folded(new.text)}]
    same = [
        stone
        for stone in stones
        if isinstance(stone, dict)
        and isinstance(stone.get("words"), str)
        and any(
            compare(from_signature(stone["words"]), one, threshold=limits.similar) == "duplicate"
            for one in about
        )
    ]
    if same and new.source == "human":
        # A person may change their mind.
        entry["removed_learnings"] = [stone for stone in stones if stone not in same]
        return False
    return bool(same)


def make_room(items: list[Any], learnings: list[Learning], limits: Limits) -> Learning | None:
    """Evict the oldest that is auto, unreviewed and seen once, or refuse (F2, F35)."""
    if len(items) < limits.learnings:
        return None
    own = [i for i, x in enumerate(learnings) if is_auto(x) and x.hit_count <= 1]
    if not own:
        raise LearningsFull(FULL, todo="Review or remove some first.")
    oldest = min(own, key=lambda i: (learnings[i].iteration or 0, learnings[i].created or "", i))
    del items[oldest]
    return learnings.pop(oldest)


def _drop_old(plan: Plan, data: Data, feature: str, current_iteration: int) -> list[Learning]:
    entry, items, learnings = _opened(plan, data, feature)
    old = [
        i
        for i, x in enumerate(learnings)
        if is_auto(x)
        and x.hit_count <= 1  # seen more than once: marked stale, but kept (F35)
        and (how_old := age(x, current_iteration)) is not None
        and how_old > plan.limits.dropped_after
    ]
    if old:
        _keep(entry, [item for i, item in enumerate(items) if i not in old])
    return [learnings[i] for i in old]


def _keep(entry: Data, items: list[Any]) -> None:
    if items:
        entry["learnings"] = items
    else:
        entry.pop("learnings", None)


def _merged(item: Any, learning: Learning) -> Data:
    """The learning in its item; keys of the item that are not Ralph's stay."""
    plain = to_plain(learning)
    if not isinstance(item, dict):
        return plain
    own = {k: plain.get(k, v) for k, v in item.items() if k in plain or k not in _OWN_KEYS}
    return {**own, **plain}


def _clean(text: str, limits: Limits) -> str:
    plain = cut(sanitise(redact(text)).strip(), limits.learning)
    if not plain:
        raise BadInput("a learning without text", todo="Say what was learned.")
    return plain


def _reason(text: str, limits: Limits) -> str:
    return cut(sanitise(redact(text)), limits.learning)
