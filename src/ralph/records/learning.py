"""Learning: one lesson from earlier iterations, with its origin and how far to trust it.

A learning is an observation. `reviewed` says that a reviewer looked at it, not that it is true:
reviewers make mistakes too (F27).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from ralph.errors import BadInput
from ralph.records.iteration import cut

LEARNING = "learning"
FEATURE = "feature"
MAX_CHARS = 500

LearningSource = Literal["auto", "agent", "human", "reviewed"]
# A later source is trusted more.
TRUST: dict[str, int] = {source: i for i, source in enumerate(get_args(LearningSource))}
# Names that earlier tools used for the same sources.
_ALIASES = {"opus_reviewed": "reviewed"}


class Learning(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What was learned, where it came from (F3), why it exists (F31) and for which task (F25).

    `iteration` is where it was first seen, `last_seen` where the extractor last saw it; `task_id`
    None means the whole feature. Keys in the file that are not Ralph's are left alone.
    """

    text: str
    source: LearningSource = "agent"
    iteration: int | None = None
    created: str | None = None
    hit_count: int = 1
    reviewed: bool = False
    reason: str | None = None
    task_id: int | str | None = None
    last_seen: int | None = None

    @property
    def id(self) -> str:
        """A short hash of the text: equal texts have equal ids."""
        return hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()[:8]

    @property
    def provenance(self) -> str:
        """The origin as a prompt shows it: `[auto, iteration 7, unverified]`."""
        parts: list[str] = [self.source]
        parts += [f"iteration {self.iteration}"] if self.iteration is not None else []
        parts += [f"task {self.task_id}"] if self.task_id is not None else []
        parts += [f"seen {self.hit_count} times"] if self.hit_count > 1 else []
        if not self.reviewed and self.source != "human":  # a person's word needs no proof
            parts.append("unverified")
        elif self.reviewed and self.source != "reviewed":
            parts.append("reviewed")
        return f"[{', '.join(parts)}]"


class FeatureLearning(Learning, frozen=True, omit_defaults=True, kw_only=True):
    """A learning, and the feature it belongs to."""

    feature: str = ""


class FeatureSnapshot(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the plan says about a feature now."""

    feature: str
    description: str
    architecture: str = ""
    boundaries: str = ""
    current_state: str = ""

    @property
    def text(self) -> str:
        """All of it as one text."""
        parts = (self.description, self.architecture, self.boundaries, self.current_state)
        return "\n".join(filter(None, parts))


FIELDS: tuple[str, ...] = Learning.__struct_fields__
_HINT = "Write a plain text, or a mapping with `text` and any of " + ", ".join(FIELDS[1:]) + "."


def read_learning(plain: object, where: str | None = None) -> Learning:
    """Read a learning from YAML or JSON data: a text or a mapping, else BadInput (F36)."""
    if isinstance(plain, str):
        return _need_text(Learning(text=cut(plain.strip(), MAX_CHARS)), where)
    if not isinstance(plain, Mapping):
        raise BadInput(
            f"a learning is a text or a mapping, not {_kind(plain)}", where=where, todo=_HINT
        )
    known: dict[str, Any] = {str(k): v for k, v in plain.items() if k in FIELDS and v is not None}
    if "verified" in plain and "reviewed" not in known:
        known["reviewed"] = plain["verified"]
    if isinstance(source := known.get("source"), str):
        known["source"] = _ALIASES.get(source, source)
    try:
        learning = msgspec.convert(known, Learning)
    except msgspec.ValidationError as error:
        raise BadInput(f"not a learning: {error}", where=where, todo=_HINT) from None
    if learning.hit_count < 1:
        learning = msgspec.structs.replace(learning, hit_count=1)
    return _need_text(
        msgspec.structs.replace(learning, text=cut(learning.text.strip(), MAX_CHARS)), where
    )


def to_plain(learning: Learning) -> dict[str, Any]:
    """Return the learning as YAML and JSON store it, without unset fields."""
    plain: dict[str, Any] = {"text": learning.text, "source": learning.source}
    for name in FIELDS[2:]:
        value = getattr(learning, name)
        if value is not None and value is not False:
            plain[name] = value
    return plain


def _need_text(learning: Learning, where: str | None) -> Learning:
    if not learning.text:
        raise BadInput("a learning without text", where=where, todo="Write its text or delete it.")
    return learning


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    names = {"list": "a list", "int": "a number", "float": "a number", "bool": "true or false"}
    return names.get(type(value).__name__, type(value).__name__)
