"""What an iteration teaches: few learnings, each with the evidence that it has for being one.

The best there is: an error that was met and then overcome, with the words that say how. It is
taken only when a sentence of the summary or a decision speaks of that error or of its file, or
tells a fix in an iteration that had no other error. Then: decisions with a reason, from
iterations that succeeded. Nothing is guessed; most iterations teach nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any, Literal

import msgspec

from ralph.errors import BadInput, LearningsFull, NotFound
from ralph.kinds.iteration import Decision, ErrorSeen, Iteration, cut
from ralph.kinds.learning import FIELDS, TRUST, Learning, LearningSource, read_learning, to_plain
from ralph.plan.model import DEFAULT_LIMITS, Data, PlanLimits, TaskId, path_of
from ralph.plan.store import Plan
from ralph.text.lookalikes import folded
from ralph.text.redact import redact
from ralph.text.sanitise import sanitise, sanitised_line
from ralph.text.similar import compare, from_signature, gist

MOST = 3
_MOST_DECISIONS = 2
_LOOK_BACK = 10
_ERROR_CHARS = 160
_FIX_CHARS = 300
_SHORTEST = 20

_FIX = re.compile(
    r"\b(?:fix(?:ed|es|ing)?|resolv(?:ed|es|ing)|solved|repaired|corrected|turned\s+out"
    r"|root\s+cause|(?:the\s+)?(?:problem|cause|issue|bug|culprit|reason|trick|solution)\s+(?:was|is)"
    r"|caused\s+by|had\s+to|needed\s+to|needs?\s+to|must\s+be|was\s+missing|works?\s+(?:now|once|when)"
    r"|by\s+(?:adding|changing|using|setting|moving|removing|replacing|returning|passing|calling"
    r"|wrapping|renaming|updating|switching|installing|making|mocking|awaiting)"
    r"|because|instead\s+of|so\s+that)\b",
    re.IGNORECASE,
)
_STRONG_FIX = re.compile(
    r"\b(?:fix(?:ed|es)|resolved|solved|corrected|turned\s+out|root\s+cause|caused\s+by"
    r"|(?:problem|cause|issue|bug|culprit)\s+was|was\s+missing)\b",
    re.IGNORECASE,
)
_UNSOLVED = re.compile(
    r"\b(?:still|not\s+yet|todo|remains?|cannot|could\s?n[o']t|unable|fail(?:s|ed|ing)?\s+to|unclear"
    r"|next\s+step|will\s+need|should\s+(?:be\s+)?(?:investigate|look|check))\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(\[])|\n+\s*(?:[-*•]|\d+[.)])?\s*")
_BULLET = re.compile(r"^\s*(?:[-*•#>]+|\d+[.)])\s*")
# A tool the agent may not use teaches nothing about the feature.
_NO_LESSON = frozenset({"permission"})


class LearningDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A learning that is not yet one: what was seen, in which iteration, and why it counts."""

    text: str
    reason: str | None = None
    iteration: int | None = None
    task_id: int | str | None = None


def extract(
    newest: Iteration,
    earlier: Sequence[Iteration] = (),
    *,
    signature: Callable[[str], str] | None = None,
    most: int = MOST,
) -> list[LearningDraft]:
    """The learnings in the newest iteration, seen against the earlier ones of its feature."""
    if newest.outcome not in ("success", "partial"):
        return []
    sign = signature or _default_signature()
    past = [it for it in earlier if it.iteration_number != newest.iteration_number][-_LOOK_BACK:]
    drafts = _overcome(newest, past, sign)
    if newest.outcome == "success":
        drafts += _decided(newest, drafts)
    return drafts[:most]


def _overcome(
    newest: Iteration, past: Sequence[Iteration], sign: Callable[[str], str]
) -> list[LearningDraft]:
    """Errors that were there and are gone, with the sentence that says how."""
    met: dict[str, tuple[ErrorSeen, list[int]]] = {}
    for iteration in past:
        if _same_task(iteration, newest):
            if iteration.outcome == "success":
                met.clear()  # what came before was overcome then
            for error in iteration.errors:
                _meet(met, error, iteration, sign)
    still = {sign(error.message) for error in newest.errors}
    own: dict[str, tuple[ErrorSeen, list[int]]] = {}
    for error in newest.errors:
        _meet(own, error, newest, sign)
    gone = {key: value for key, value in met.items() if key not in still}
    if newest.outcome == "success":
        # Inside a success every error of its own was overcome as well.
        gone |= {key: (e, [*met.get(key, (e, []))[1], *n]) for key, (e, n) in own.items()}
    drafts: list[LearningDraft] = []
    sentences = _sentences(newest)
    used: set[str] = set()
    for error, seen in gone.values():
        how = _how(error, [s for s in sentences if s not in used], alone=len(gone) == 1)
        if how is None:
            continue
        used.add(how)
        drafts.append(_draft(newest, error, seen, how))
    return drafts


def _meet(
    met: dict[str, tuple[ErrorSeen, list[int]]],
    error: ErrorSeen,
    iteration: Iteration,
    sign: Callable[[str], str],
) -> None:
    if error.error_type in _NO_LESSON or len(error.message.strip()) < _SHORTEST // 2:
        return
    _, seen = met.setdefault(sign(error.message), (error, []))
    number = iteration.iteration_number
    if number is not None and number not in seen:
        seen.append(number)


def _how(error: ErrorSeen, sentences: Sequence[str], *, alone: bool) -> str | None:
    """The sentence that says how the error went away, or None."""
    about = gist(error.message).words
    file = PurePosixPath(error.file_path).name.lower() if error.file_path else None
    best: tuple[int, str] | None = None
    for sentence in sentences:
        if not _FIX.search(sentence) or _UNSOLVED.search(sentence):
            continue
        shared = len(about & gist(sentence).words)
        score = shared + (2 if file and file in sentence.lower() else 0)
        strong = bool(_STRONG_FIX.search(sentence))
        if score >= 2 or (score >= 1 and strong) or (alone and strong):
            score = score * 2 + strong
            if best is None or score > best[0]:
                best = (score, sentence)
    return best[1] if best else None


def _draft(newest: Iteration, error: ErrorSeen, seen: Sequence[int], how: str) -> LearningDraft:
    message = cut(" ".join(error.message.split()), _ERROR_CHARS)
    place = f" ({error.file_path})" if error.file_path and error.file_path not in message else ""
    before = [n for n in seen if n != newest.iteration_number]
    if before:
        where = "iteration " if len(before) == 1 else "iterations "
        reason = f"error in {where}{', '.join(map(str, before))}, overcome in iteration "
        reason += f"{newest.iteration_number} ({newest.outcome})"
    else:
        reason = f"error met and overcome in iteration {newest.iteration_number}"
    return LearningDraft(
        text=f"{message}{place}: {cut(how, _FIX_CHARS)}",
        reason=reason,
        iteration=newest.iteration_number,
        task_id=None,
    )


def _decided(newest: Iteration, taken: Sequence[LearningDraft]) -> list[LearningDraft]:
    """Decisions with a reason, unless an overcome error says it already."""
    drafts: list[LearningDraft] = []
    for decision in newest.decisions:
        text = _decision_text(decision)
        if text is None or any(decision.description in draft.text for draft in [*taken, *drafts]):
            continue
        drafts.append(
            LearningDraft(
                text=text,
                reason=f"decided in iteration {newest.iteration_number}, which succeeded"
                + (f" ({cut(newest.task_title, 80)})" if newest.task_title else ""),
                iteration=newest.iteration_number,
                task_id=newest.task_id,
            )
        )
    return drafts[:_MOST_DECISIONS]


def _decision_text(decision: Decision) -> str | None:
    what = " ".join(decision.description.split()).rstrip(".")
    why = " ".join((decision.rationale or "").split()).rstrip(".")
    if len(what) < _SHORTEST // 2 or len(why) < _SHORTEST // 2:
        return None
    joined = why if re.match(r"(?:because|since|so that|to|as)\b", why, re.I) else f"because {why}"
    return cut(f"{what}, {joined}", _ERROR_CHARS + _FIX_CHARS)


def _sentences(iteration: Iteration) -> list[str]:
    told = [_BULLET.sub("", s).strip() for s in _SENTENCE.split(iteration.summary)]
    told += [
        f"{d.description}: {d.rationale}" if d.rationale else d.description
        for d in iteration.decisions
    ]
    return list(dict.fromkeys(" ".join(s.split()) for s in told if len(s) >= _SHORTEST))


def _same_task(one: Iteration, other: Iteration) -> bool:
    return str(one.task_id) == str(other.task_id)


def _default_signature() -> Callable[[str], str]:
    from ralph.text.signature import signature

    return signature


# -- Which learnings a prompt shows, and how: as observations with their provenance (F3, F25).


def is_stale(
    learning: Learning, current_iteration: int, limits: PlanLimits = DEFAULT_LIMITS
) -> bool:
    """An unreviewed learning of the extractor's that nothing has confirmed for long (F4)."""
    how_old = age(learning, current_iteration)
    return is_auto(learning) and how_old is not None and how_old > limits.stale_after


def conflicts(learnings: Sequence[Learning]) -> list[tuple[Learning, Learning]]:
    """Every pair that contradicts each other."""
    gists = [gist(learning.text) for learning in learnings]
    return [
        (learnings[i], learnings[j])
        for i in range(len(learnings))
        for j in range(i + 1, len(learnings))
        if compare(gists[i], gists[j]) == "conflict"
    ]


def top(
    learnings: Iterable[Learning],
    *,
    task_id: TaskId | None = None,
    limits: PlanLimits = DEFAULT_LIMITS,
) -> list[Learning]:
    """The ones a prompt shows for a task: reviewed first, then most seen, then most trusted.

    A learning of another task is not shown; one of the whole feature always is (F25).
    """
    fitting = [
        learning
        for learning in learnings
        if learning.task_id is None or str(learning.task_id) == str(task_id)
    ]
    fitting.sort(
        key=lambda x: (x.reviewed, x.hit_count, TRUST[x.source], x.iteration or 0), reverse=True
    )
    return fitting[: limits.learnings_in_prompt]


def prompt_lines(
    learnings: Sequence[Learning],
    *,
    current_iteration: int,
    task_id: TaskId | None = None,
    limits: PlanLimits = DEFAULT_LIMITS,
) -> list[str]:
    """One line for each of the top ones: the text, where it came from, and what contradicts it."""
    against: dict[str, list[str]] = {}
    for one, other in conflicts(learnings):
        against.setdefault(one.text, []).append(other.text)
        against.setdefault(other.text, []).append(one.text)
    lines: list[str] = []
    for learning in top(learnings, task_id=task_id, limits=limits):
        stale = "[STALE] " if is_stale(learning, current_iteration, limits) else ""
        text = sanitised_line(learning.text)
        line = f"- {stale}{text} {provenance(learning)}"
        for rival in against.get(learning.text, ()):
            line += f" [conflicts with: {cut(sanitised_line(rival), 120)}]"
        lines.append(line)
    return lines


def provenance(learning: Learning) -> str:
    """Where a learning came from, as others may read it."""
    if isinstance(learning.task_id, str):
        clean = sanitised_line(learning.task_id)
        learning = msgspec.structs.replace(learning, task_id=clean)
    return learning.provenance


def is_auto(learning: Learning) -> bool:
    """Whether the extractor found it and nobody has looked at it since."""
    return learning.source == "auto" and not learning.reviewed


def age(learning: Learning, current_iteration: int) -> int | None:
    """How many iterations ago it was last seen; None when that was never noted."""
    seen = max(learning.last_seen or 0, learning.iteration or 0)
    return current_iteration - seen if seen else None


# -- Learnings: appended, removed and reviewed one at a time, never replaced as a list (F1).


FULL = "Learnings full - review needed"
_OWN_KEYS = frozenset({*FIELDS, "verified"})


class AddedLearning(msgspec.Struct, frozen=True):
    """What became of a learning that was given.

    added: it is new. seen_again: the extractor saw a known one once more. known: it says what is
    known already. removed_before: somebody removed it, so it is not learned again.
    """

    what: Literal["added", "seen_again", "known", "removed_before"]
    learning: Learning
    conflicts: tuple[Learning, ...] = ()
    evicted: Learning | None = None


class LearningOutcome(msgspec.Struct, frozen=True):
    """What an iteration's drafts became, and how many found no room."""

    added: tuple[AddedLearning, ...] = ()
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
) -> AddedLearning:
    """Append one learning; a near-duplicate is not added, a contradiction is, and is named."""
    draft = LearningDraft(text=text, reason=reason, iteration=iteration, task_id=task_id)
    with plan.edit("features", f"learning added to {feature}") as data:
        return append(plan, data, feature, draft, source)


def learn(
    plan: Plan, feature: str, drafts: Sequence[LearningDraft], *, current_iteration: int
) -> LearningOutcome:
    """What the extractor found: new ones join, known ones count again, old ones are dropped."""
    added: list[AddedLearning] = []
    refused = 0
    with plan.edit("features", f"{feature} learned from iteration {current_iteration}") as data:
        dropped = _drop_old(plan, data, feature, current_iteration)
        for draft in drafts:
            try:
                added.append(append(plan, data, feature, draft, "auto"))
            except LearningsFull:
                refused += 1
    return LearningOutcome(tuple(added), refused, tuple(dropped))


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
    document = plan.document("features")
    return document.where((*path_of(document.data, "features", feature), "learnings", *steps))


def append(
    plan: Plan, data: Data, feature: str, draft: LearningDraft, source: LearningSource
) -> AddedLearning:
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
        return AddedLearning("removed_before", new)
    against: list[Learning] = []
    for i, old in enumerate(learnings):
        verdict = compare(gist(old.text), about, threshold=plan.limits.similar)
        if verdict == "conflict":
            against.append(old)
        if verdict != "duplicate":
            continue
        known = _seen_again(old, new)
        if known == old:
            return AddedLearning("known", old)
        items[i] = _merged(items[i], known)
        _keep(entry, items)
        return AddedLearning("seen_again" if known.hit_count > old.hit_count else "known", known)
    evicted = make_room(items, learnings, plan.limits)
    items.append(to_plain(new))
    _keep(entry, items)
    return AddedLearning("added", new, tuple(against), evicted)


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


def was_removed(entry: Data, new: Learning, limits: PlanLimits) -> bool:
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


def make_room(items: list[Any], learnings: list[Learning], limits: PlanLimits) -> Learning | None:
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


def _clean(text: str, limits: PlanLimits) -> str:
    plain = cut(sanitise(redact(text)).strip(), limits.learning)
    if not plain:
        raise BadInput("a learning without text", todo="Say what was learned.")
    return plain


def _reason(text: str, limits: PlanLimits) -> str:
    return cut(sanitise(redact(text)), limits.learning)
