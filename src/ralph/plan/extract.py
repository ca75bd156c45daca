"""What an iteration teaches: few learnings, each with the evidence that it has for being one.

The best there is: an error that was met and then overcome, with the words that say how. It is
taken only when a sentence of the summary or a decision speaks of that error or of its file, or
tells a fix in an iteration that had no other error. Then: decisions with a reason, from
iterations that succeeded. Nothing is guessed; most iterations teach nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

import msgspec

from ralph.kinds.iteration import Decision, ErrorSeen, Iteration, cut
from ralph.text.sameness import gist

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
_OPEN = re.compile(
    r"\b(?:still|not\s+yet|todo|remains?|cannot|could\s?n[o']t|unable|fail(?:s|ed|ing)?\s+to|unclear"
    r"|next\s+step|will\s+need|should\s+(?:be\s+)?(?:investigate|look|check))\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'(\[])|\n+\s*(?:[-*•]|\d+[.)])?\s*")
_BULLET = re.compile(r"^\s*(?:[-*•#>]+|\d+[.)])\s*")
# A tool the agent may not use teaches nothing about the feature.
_NO_LESSON = frozenset({"permission"})


class Draft(msgspec.Struct, frozen=True, kw_only=True):
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
) -> list[Draft]:
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
) -> list[Draft]:
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
    drafts: list[Draft] = []
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
        if not _FIX.search(sentence) or _OPEN.search(sentence):
            continue
        shared = len(about & gist(sentence).words)
        score = shared + (2 if file and file in sentence.lower() else 0)
        strong = bool(_STRONG_FIX.search(sentence))
        if score >= 2 or (score >= 1 and strong) or (alone and strong):
            score = score * 2 + strong
            if best is None or score > best[0]:
                best = (score, sentence)
    return best[1] if best else None


def _draft(newest: Iteration, error: ErrorSeen, seen: Sequence[int], how: str) -> Draft:
    message = cut(" ".join(error.message.split()), _ERROR_CHARS)
    place = f" ({error.file_path})" if error.file_path and error.file_path not in message else ""
    before = [n for n in seen if n != newest.iteration_number]
    if before:
        where = "iteration " if len(before) == 1 else "iterations "
        reason = f"error in {where}{', '.join(map(str, before))}, overcome in iteration "
        reason += f"{newest.iteration_number} ({newest.outcome})"
    else:
        reason = f"error met and overcome in iteration {newest.iteration_number}"
    return Draft(
        text=f"{message}{place}: {cut(how, _FIX_CHARS)}",
        reason=reason,
        iteration=newest.iteration_number,
        task_id=None,
    )


def _decided(newest: Iteration, taken: Sequence[Draft]) -> list[Draft]:
    """Decisions with a reason, unless an overcome error says it already."""
    drafts: list[Draft] = []
    for decision in newest.decisions:
        text = _decision_text(decision)
        if text is None or any(decision.description in draft.text for draft in [*taken, *drafts]):
            continue
        drafts.append(
            Draft(
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
