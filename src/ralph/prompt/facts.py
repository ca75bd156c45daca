"""Everything a prompt is made from, gathered by whoever may read files and ask memories."""

from __future__ import annotations

import msgspec

from ralph.kinds.iteration import Iteration
from ralph.plan.model import Discipline, Feature, Task


class KnowledgeFile(msgspec.Struct, frozen=True):
    """A file behind `knowledge_paths`, as it was found."""

    path: str
    text: str


class RepeatedError(msgspec.Struct, frozen=True):
    """An error that earlier iterations met, and in how many of them."""

    message: str
    iterations: int


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of a prompt, in tokens."""

    prompt: int = 12000
    requirements: int = 40000
    knowledge_file: int = 2000
    knowledge_excerpt: int = 500
    knowledge_all: int = 4000


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when a prompt for one task is built. `vanished`: a note for each lost file.

    `server` is the MCP server whose tools the agent has; without one it is told commands.
    `context` is what helped in other projects, a block that goes into the prompt as it is.
    """

    feature: Feature
    task: Task
    current_state: str
    discipline: Discipline | None = None
    learnings: tuple[str, ...] = ()
    attempts: tuple[Iteration, ...] = ()
    repeated: tuple[RepeatedError, ...] = ()
    knowledge: tuple[KnowledgeFile, ...] = ()
    vanished: tuple[str, ...] = ()
    context: str = ""
    memory_on: bool = True
    server: str | None = None
    ralph: str = "ralph"


class ReviewFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a reviewer is given besides the feature."""

    learnings: tuple[str, ...]
    all_learnings: bool
    flags: tuple[str, ...] = ()
