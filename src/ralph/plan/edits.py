"""The changes that a person or an agent makes to a plan, as calls of one object.

`RemotePlan` of a server has the same calls, so a command need not know where the plan is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ralph.plan import edit, learnings
from ralph.plan.fields import Patch
from ralph.plan.learnings import AddedLearning
from ralph.plan.model import Discipline, Feature, Kind, Task, TaskId
from ralph.records.learning import Learning, LearningSource

if TYPE_CHECKING:
    from ralph.plan.store import Plan


class PlanEdits:
    """Changes to the plan in a folder."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def create(self, kind: Kind, *args: Any) -> Feature | Task | Discipline:
        """Add a feature or a discipline (name, patch), or a task (feature, title, patch)."""
        if kind == "features":
            return edit.create_feature(self._plan, *args)
        if kind == "tasks":
            return edit.create_task(self._plan, *args)
        return edit.create_discipline(self._plan, *args)

    def update(
        self,
        kind: Kind,
        key: TaskId,
        patch: Patch,
        *,
        comment: str | None = None,
        author: str | None = None,
    ) -> Feature | Task | Discipline:
        """Change only the fields in the patch; a task may also get a comment with its author."""
        if kind == "tasks":
            return edit.update_task(self._plan, key, patch, comment=comment, author=author)
        if kind == "features":
            return edit.update_feature(self._plan, str(key), patch)
        return edit.update_discipline(self._plan, str(key), patch)

    def delete(self, kind: Kind, key: TaskId) -> None:
        """Delete an entry; refused while tasks belong to it or wait for it."""
        edit.delete(self._plan, kind, key)

    def add_learning(
        self,
        feature: str,
        text: str,
        *,
        source: LearningSource = "agent",
        reason: str | None = None,
        task_id: TaskId | None = None,
    ) -> AddedLearning:
        """Add a learning, unless another one says the same."""
        return learnings.add(
            self._plan, feature, text, source=source, reason=reason, task_id=task_id
        )

    def remove_learning(
        self, feature: str, ref: str | int, *, by: str = "human", reason: str | None = None
    ) -> Learning:
        """Remove a learning for good."""
        return learnings.remove(self._plan, feature, ref, by=by, reason=reason)

    def review_learning(
        self, feature: str, ref: str | int, *, text: str | None = None, reason: str | None = None
    ) -> Learning:
        """Note that a learning was reviewed, perhaps in better words."""
        return learnings.review(self._plan, feature, ref, text=text, reason=reason)
