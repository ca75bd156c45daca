"""The plan of a project on a server, for a machine without the project's files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from ralph.errors import BadInput
from ralph.memory.remote import RemoteRalph
from ralph.memory.remote_values import OnServer
from ralph.plan.learnings import AddedLearning
from ralph.plan.model import Feature, Kind, PlanView, Problem, Task
from ralph.records.learning import Learning

_T = TypeVar("_T")
_NO_DISCIPLINES = "the server does not serve disciplines"
_THERE = "Run it where the server runs."


class RemotePlan(OnServer):
    """Features, tasks and learnings on a server, which checks every change."""

    twin = ("ralph.plan.store", "Plan")

    def __init__(self, ralph: RemoteRalph) -> None:
        self._ralph = ralph

    def read(self, *kinds: str) -> PlanView:
        """The features and tasks that the token may see. The server does not serve disciplines."""
        wanted = kinds or ("features", "tasks")
        if "disciplines" in wanted:
            raise BadInput(_NO_DISCIPLINES, todo=_THERE)
        features = self._ask(tuple[Feature, ...], "GET", "features") if "features" in wanted else ()
        tasks = self._ask(tuple[Task, ...], "GET", "tasks") if "tasks" in wanted else ()
        return PlanView(features, tasks)

    def feature(self, name: str) -> Feature:
        """One feature."""
        return self._ask(Feature, "GET", "features", name)

    def task(self, task_id: object) -> Task:
        """One task."""
        return self._ask(Task, "GET", "tasks", task_id)

    @property
    def edits(self) -> RemotePlan:
        """The changes to it: the server makes them."""
        return self

    def errors(self, *kinds: str) -> list[Problem]:
        """Return nothing: the server tells its own people what cannot be read."""
        return []

    def create(self, kind: Kind, *args: Any) -> Feature | Task:
        """Add a feature (name, patch) or a task (feature, title, patch)."""
        if kind == "features":
            name, patch = args
            return self._ask(Feature, "POST", "features", body={**patch, "name": name})
        if kind == "tasks":
            feature, title, patch = args
            body = {**patch, "feature": feature, "title": title}
            return self._ask(Task, "POST", "tasks", body=body)
        raise BadInput(_NO_DISCIPLINES, todo=_THERE)

    def update(
        self,
        kind: Kind,
        key: object,
        patch: Mapping[str, Any],
        *,
        comment: str | None = None,
        author: str | None = None,
    ) -> Feature | Task:
        """Change only the given fields; a comment is signed with the token's name."""
        if kind == "features":
            return self._ask(Feature, "PATCH", "features", key, body=patch)
        if kind == "disciplines":
            raise BadInput(_NO_DISCIPLINES, todo=_THERE)
        if author is not None:
            raise BadInput("the server signs comments with the token's name", todo="Omit --author.")
        given = patch if comment is None else {**patch, "comment": comment}
        return self._ask(Task, "PATCH", "tasks", key, body=given)

    def delete(self, kind: Kind, key: object) -> None:
        """Delete an entry; refused while tasks belong to it or wait for it."""
        if kind == "disciplines":
            raise BadInput(_NO_DISCIPLINES, todo=_THERE)
        self._ask(dict[str, Any], "DELETE", kind, key)

    def add_learning(
        self, feature: str, text: str, *, task_id: object = None, **given: Any
    ) -> AddedLearning:
        """Add a learning, unless another one says the same."""
        if task_id is not None:
            what = "a learning on a server is about the whole feature"
            raise BadInput(what, todo="Leave out --task.")
        body = {"text": text, **given}
        return self._ask(AddedLearning, "POST", "features", feature, "learnings", body=body)

    def remove_learning(self, feature: str, ref: str, *, reason: str | None, **_: Any) -> Learning:
        """Remove a learning for good."""
        query = urlencode({} if reason is None else {"reason": reason})
        return self._ask(Learning, "DELETE", "features", feature, "learnings", ref, query=query)

    def review_learning(self, feature: str, ref: str, **found: str | None) -> Learning:
        """Note that a learning was reviewed, perhaps in better words."""
        return self._ask(Learning, "PATCH", "features", feature, "learnings", ref, body=found)

    def _ask(
        self, kind: type[_T], method: str, *path: object, body: Any = None, query: str = ""
    ) -> _T:
        at = "".join(f"/{quote(str(part), safe='')}" for part in path)
        told = self._ralph.call(method, f"{at}?{query}" if query else at, body)
        return msgspec.convert(told, kind, strict=False)
