"""Commands that failed the same way in two or more sessions, with what worked instead.

A command counts only if it never passed after it first failed: then the same shape will fail
again. Only a person's own sessions are evidence; a project's journals may be somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ralph.capture.shapes import Shape, failed_shape
from ralph.memory.stats import SHELLS
from ralph.records.conversation import Exchange, Message
from ralph.text.signature import same_error, signature

_LEAST_SESSIONS = 2
_COMPARED_CHARS = 60


class Repeat(msgspec.Struct, frozen=True, kw_only=True):
    """A shape of command that failed in several sessions; `id` is the exchange with the fix."""

    shape: Shape
    sessions: int
    last: str
    message: str
    fix: str
    id: str


class _Claim(msgspec.Struct):
    """What an error's solution says about a shape; the newest solution counts."""

    message: str
    fix: str
    id: str


class _Tries(msgspec.Struct):
    failed_in: set[str] = msgspec.field(default_factory=set)
    last: str = ""
    passed: bool = False


def proven_repeats(exchanges: Sequence[Exchange]) -> list[Repeat]:
    """Return the proven repeats in these exchanges, which are in time order; most met first."""
    claims = _claims(exchanges)
    evidence = {shape: _Tries() for shape in claims}
    for exchange in exchanges:
        signatures = [signature(error.message) for error in exchange.errors]
        for line, message in _shell_lines(exchange.messages):
            for shape, claim in claims.items():
                if shape.program[0] in line and shape.fits(line):
                    found = _result(message, claim, signatures)
                    _add(evidence[shape], exchange, found)
    repeats = [
        Repeat(
            shape=shape,
            sessions=len(evidence[shape].failed_in),
            last=evidence[shape].last,
            message=claim.message,
            fix=claim.fix,
            id=claim.id,
        )
        for shape, claim in claims.items()
        if len(evidence[shape].failed_in) >= _LEAST_SESSIONS and not evidence[shape].passed
    ]
    return sorted(repeats, key=lambda repeat: (-repeat.sessions, repeat.last))


def _claims(exchanges: Iterable[Exchange]) -> dict[Shape, _Claim]:
    claims: dict[Shape, _Claim] = {}
    for exchange in exchanges:
        for error in exchange.errors:
            found = failed_shape(error.message, error.resolution or "")
            if found is not None:
                shape, fix = found
                claims[shape] = _Claim(error.message, fix, exchange.id)
    return claims


def _shell_lines(messages: Iterable[Message]) -> Iterable[tuple[str, Message]]:
    for message in messages:
        if message.role == "tool" and message.tool.lower() in SHELLS:
            # The answer follows on the next line; of a longer script only the first line counts.
            yield message.content.partition("\n")[0], message


def _result(
    message: Message, claim: _Claim, signatures: Sequence[str]
) -> Literal["same", "passed", "unclear"]:
    """Return whether a call failed as the claim says; anything else counts as passed."""
    output = " ".join(message.content.partition("\n")[2].split())
    if " ".join(claim.message.split())[:_COMPARED_CHARS] in output:
        return "same"
    if not message.failed:
        return "passed"
    wanted = signature(claim.message)
    if any(same_error(one, wanted) for one in signatures):
        return "same"
    return "unclear"


def _add(
    evidence: _Tries, exchange: Exchange, result: Literal["same", "passed", "unclear"]
) -> None:
    if result == "same":
        evidence.failed_in.add(exchange.conversation)
        evidence.last = exchange.completed or evidence.last
    elif result == "passed" and evidence.failed_in:
        evidence.passed = True
