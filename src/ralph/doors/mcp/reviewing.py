"""The tools that a review has besides: learnings confirmed or taken out, prose verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from ralph.doors.mcp.answers import harmless
from ralph.doors.mcp.tool import Arguments
from ralph.doors.mcp.tool import writing as tool
from ralph.doors.mcp.writing import AUTHOR
from ralph.text.marks import mark

if TYPE_CHECKING:
    from ralph.doors.mcp.desk import Desk

_WHICH = "The learning's id (8 characters), as the prompt lists it."


class Reviewed(Arguments, frozen=True, kw_only=True):
    """What review_learning takes."""

    id: Annotated[str, Meta(description=_WHICH)]
    text: Annotated[str | None, Meta(description="Better words for it, if it needs them.")] = None
    reason: Annotated[str | None, Meta(description="What you looked at and what you found.")] = None


class Removed(Arguments, frozen=True, kw_only=True):
    """What remove_learning takes."""

    id: Annotated[str, Meta(description=_WHICH)]
    reason: Annotated[str | None, Meta(description="Why it goes: wrong, outdated, double.")] = None


class Verified(Arguments, frozen=True, kw_only=True):
    """No arguments."""


def review_learning(desk: Desk, given: Reviewed) -> str:
    """Note that a learning was looked at; reviewed is not proven (F27)."""
    from ralph.plan.learnings import provenance, review

    done = review(desk.plan, desk.need_feature(), given.id, text=given.text, reason=given.reason)
    return f"Reviewed.\n{mark(f'[{done.id}] {harmless(done.text, 500)} {provenance(done)}')}"


def remove_learning(desk: Desk, given: Removed) -> str:
    """Take a learning out; the same lesson is not learned again."""
    from ralph.plan.learnings import remove

    gone = remove(desk.plan, desk.need_feature(), given.id, by=AUTHOR, reason=given.reason)
    return f"Removed.\n{mark(harmless(gone.text, 500))}"


def verify_feature(desk: Desk, given: Verified) -> str:
    """Note that the feature's prose was compared with the code just now."""
    from ralph.plan.edit import update_feature

    feature = desk.need_feature()
    iteration = desk.last_iteration(feature)
    update_feature(desk.plan, feature, {"last_verified": iteration})
    name = harmless(feature, 80)
    return f"Noted: the prose of {name!r} matched the code as of iteration {iteration}."


TOOLS = (
    tool(
        Reviewed,
        review_learning,
        title="Confirm a learning",
        description=(
            "Note that you checked a learning against the code and it still holds, in better words "
            "if it needs them.\n"
            "Use it in a review, once for each learning that is right. Reviewed learnings come "
            "first in later prompts, so look before you confirm."
        ),
        example={"id": "1f0c2a9b", "reason": "src/login.py sets the cookie first."},
        destroys=True,  # better words replace the old ones
        repeatable=True,
    ),
    tool(
        Removed,
        remove_learning,
        title="Remove a learning",
        description=(
            "Take out a learning that is wrong, outdated or says the same as another one. It is "
            "gone for good: the same lesson is not learned again.\n"
            "Use it in a review. Of duplicates keep the best and remove the others."
        ),
        example={"id": "1f0c2a9b", "reason": "The cookie is gone since iteration 12."},
        destroys=True,
    ),
    tool(
        Verified,
        verify_feature,
        title="Mark the prose as verified",
        description=(
            "Note that the feature's description, architecture and boundaries match the code as it "
            "is now.\n"
            "Use it at the end of a review, after you compared them and corrected what was wrong "
            "with update_feature."
        ),
        example={},
        repeatable=True,
    ),
)
