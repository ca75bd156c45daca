"""The plan of a project on a server, for a machine without the project's files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from ralph.errors import BadInput
from ralph.memory.remote import RemoteRalph
from ralph.memory.remote_values import OnServer
from ralph.plan.learnings import AddedLearning
from ralph.plan.model import Feature, Kind, PlanView, Task
from ralph.records.learning import Learning

_THERE = "Run it where the server runs."


class RemotePlan(OnServer):
    """Features, tasks and learnings on a server, which checks every change."""

    def __init__(self, ralph: RemoteRalph) -> None:
        self._ralph = ralph

    def read(self, *kinds: str) -> PlanView:
        """The features and tasks that the token may see. The server does not serve disciplines."""
        wanted = kinds or ("features", "tasks")
        if "disciplines" in wanted:
            raise BadInput("the server does not serve disciplines", todo=_THERE)
        features = self._ralph.call("GET", "/features") if "features" in wanted else ()
        tasks = self._ralph.call("GET", "/tasks") if "tasks" in wanted else ()
        return PlanView(
            tuple(msgspec.convert(one, Feature, strict=False) for one in features),
            tuple(msgspec.convert(one, Task, strict=False) for one in tasks),
        )

    def feature(self, name: str) -> Feature:
        """One feature."""
        return self._feature("GET", f"/features/{quote(name, safe='')}")

    def task(self, task_id: object) -> Task:
        """One task."""
        return self._task("GET", f"/tasks/{quote(str(task_id), safe='')}")

    def create_feature(self, name: str, patch: Mapping[str, Any]) -> Feature:
        """Add a feature."""
        return self._feature("POST", "/features", {**patch, "name": name})

    def create_task(self, feature: str, title: str, patch: Mapping[str, Any]) -> Task:
        """Add a task."""
        return self._task("POST", "/tasks", {**patch, "feature": feature, "title": title})

    def update_feature(self, name: str, patch: Mapping[str, Any]) -> Feature:
        """Change only the given fields."""
        return self._feature("PATCH", f"/features/{quote(name, safe='')}", patch)

    def update_task(
        self,
        task_id: object,
        patch: Mapping[str, Any],
        *,
        comment: str | None = None,
        author: str | None = None,
    ) -> Task:
        """Change only the given fields; a comment is signed with the token's name."""
        if author is not None:
            raise BadInput("the server signs comments with the token's name", todo="Omit --author.")
        given = patch if comment is None else {**patch, "comment": comment}
        return self._task("PATCH", f"/tasks/{quote(str(task_id), safe='')}", given)

    def add_learning(
        self, feature: str, text: str, *, task_id: object = None, **given: Any
    ) -> AddedLearning:
        """Add a learning, unless another one says the same."""
        if task_id is not None:
            what = "a learning on a server is about the whole feature"
            raise BadInput(what, todo="Leave out --task.")
        path = f"/features/{quote(feature, safe='')}/learnings"
        told = self._ralph.call("POST", path, {"text": text, **given})
        return msgspec.convert(told, AddedLearning)

    def remove_learning(self, feature: str, ref: str, *, reason: str | None, **_: Any) -> Learning:
        """Remove a learning for good."""
        query = {} if reason is None else {"reason": reason}
        return self._learning("DELETE", feature, f"{quote(ref, safe='')}?{urlencode(query)}")

    def review_learning(self, feature: str, ref: str, **found: str | None) -> Learning:
        """Note that a learning was reviewed, perhaps in better words."""
        return self._learning("PATCH", feature, quote(ref, safe=""), found)

    def delete(self, kind: Kind, key: object) -> None:
        """Delete an entry; refused while tasks belong to it or wait for it."""
        if kind == "disciplines":
            raise BadInput("the server does not serve disciplines", todo=_THERE)
        self._ralph.call("DELETE", f"/{kind}/{quote(str(key), safe='')}")

    def _feature(self, method: str, path: str, body: Any = None) -> Feature:
        return msgspec.convert(self._ralph.call(method, path, body), Feature, strict=False)

    def _learning(self, method: str, feature: str, ref: str, body: Any = None) -> Learning:
        path = f"/features/{quote(feature, safe='')}/learnings/{ref}"
        return msgspec.convert(self._ralph.call(method, path, body), Learning)

    def _task(self, method: str, path: str, body: Any = None) -> Task:
        return msgspec.convert(self._ralph.call(method, path, body), Task, strict=False)
