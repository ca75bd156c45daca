"""For any mangling, mixed with calls through Ralph and people's edits, nothing is lost."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ralph.errors import BadPlan
from ralph.plan import edit, learnings
from ralph.plan.guard import Guard
from ralph.plan.model import STATUSES, Kind, find_entity
from ralph.plan.store import Plan
from ralph.plan.yaml import PlanFile

OWN, OTHER = "auth", "payments"
PROSE = ("description", "architecture", "boundaries")
WORDS = ["alpha", "bravo", "cobalt", "delta", "ember", "falcon", "garnet", "harbor", "indigo"]
FEATURES = """\
# written by a person
version: 1
features:
  - name: auth
    description: Users log in with e-mail.
    architecture: |
      JWT in a cookie,
      signed.
    learnings:
      - Tokens expire hourly
      - text: "Middleware: wants a User object"
        source: human
        hit_count: 3
      - {text: Cookies are lax, source: auto, iteration: 4}
  # the other one
  - name: payments
    description: Charge cards.
    boundaries: No wallets.
    owner: ana
    learnings:
      - Webhooks need raw bodies
"""
TASKS = """\
version: 1
tasks:
  - id: 1
    feature: auth
    title: Build the form
    description: With validation.
    status: pending
    comments:
      - start with the mail field
  - id: 2
    feature: payments
    title: Charge a card
    status: pending
"""


class World:
    """A plan in which an agent, Ralph and a person act, and what must be true in the end."""

    def __init__(self, project: Path, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        ticks = count()
        self.plan = Plan(project, clock=lambda: f"2026-02-07T10:00:00.{next(ticks):06}Z")
        self.plan.folder.mkdir(parents=True)
        self.base: dict[Kind, str] = {"features": FEATURES, "tasks": TASKS}
        for kind, text in self.base.items():
            self.plan.path(kind).write_text(text)
        self.guard = Guard(self.plan)
        self.snapshot = self.guard.snapshot()
        self.draw = draw
        self.number = count()
        view = self.plan.load()
        self.learned = {f.name: {x.text for x in f.learnings} for f in view.features}
        self.prose = {(f.name, p): getattr(f, p) for f in view.features for p in PROSE}
        self.status = "pending"
        self.file_status: Any = "pending"
        self.by_ralph = False
        self.comments = {"start with the mail field"}
        self.persons: dict[tuple[str, str], str] = {}
        self.said = self.words(*self.base.values())

    @staticmethod
    def words(*files: str) -> set[str]:
        """Everything that stands in these files, text by text."""
        found: set[str] = set()
        for file in files:
            with contextlib.suppress(BadPlan):
                found |= set(_texts(PlanFile(file, name="x").data))
        return found

    def data(self, kind: Kind) -> dict[str, Any] | None:
        try:
            return PlanFile.read(self.plan.raw(kind) or b"", name="x").data or None
        except BadPlan:
            return None

    def word(self) -> str:
        n = next(self.number)
        return f"{WORDS[n % len(WORDS)]}{n} {WORDS[(n * 7 + 3) % len(WORDS)]}{n} happened"

    # -- Ralph's own calls; while the file is broken they are refused, and that is right

    def ralph(self) -> None:
        action = self.draw(st.sampled_from(["learn", "prose", "status", "comment", "forget"]))
        feature = self.draw(st.sampled_from([OWN, OTHER]))
        try:
            self._ralph(action, feature)
        except BadPlan:
            return
        except Exception as error:
            if type(error).__name__ not in ("NotFound", "BadInput"):
                raise

    def _ralph(self, action: str, feature: str) -> None:
        text = self.word()
        if action == "learn":
            if learnings.add(self.plan, feature, text).what == "added":
                self.learned[feature].add(text)
        elif action == "prose":
            field = self.draw(st.sampled_from(PROSE))
            edit.update_feature(self.plan, feature, {field: text})
            self.prose[feature, field] = text
        elif action == "status":
            edit.update_task(self.plan, 1, {"status": "in_progress"})
            self.status = self.file_status = "in_progress"
            self.by_ralph = True
        elif action == "comment":
            edit.update_task(self.plan, 1, comment=text)
            self.comments.add(text)
        else:
            gone = learnings.remove(self.plan, feature, 1)
            self.learned[feature].discard(gone.text)
            self.said.discard(gone.text)

    # -- a person's editor, while the agent has no call under way

    def person(self, *, idle: bool = True) -> None:
        data = self.data("features")
        if data is None:
            return
        for name in (OTHER, OWN):
            entry = find_entity(data, "features", name)
            if entry is None:
                continue
            text = self.word()
            field = self.draw(st.sampled_from(PROSE))
            if entry.get(field) is not None and not isinstance(entry[field], str):
                continue
            if idle:  # who writes over their own words means it
                self.said.discard(self.persons.get((name, field), ""))
                self.prose[name, field] = self.persons[name, field] = text
            entry[field] = text
            self.said.add(text)
            self.plan.path("features").write_text(PlanFile("", name="x").with_data(data).text)
            break
        self.guard.observe(self.snapshot, idle=idle)

    def somebody(self) -> None:
        """A person too, but the agent has a call under way, so that nobody can know."""
        self.person(idle=False)

    # -- the agent's direct edits

    def agent(self) -> None:
        kind: Kind = self.draw(st.sampled_from(["features", "tasks"]))
        how = self.draw(st.sampled_from([self.legitimate, self.garbage, self.lines, self.damage]))
        how(kind)

    def write(self, kind: Kind, text: str) -> None:
        if text.encode("utf-8", "replace") == self.plan.raw(kind):
            return  # a write that changes nothing tells nothing
        if kind == "tasks":
            self._follow_status(text)
        self.plan.path(kind).write_bytes(text.encode("utf-8", "replace"))

    def _follow_status(self, text: str) -> None:
        """What the agent says of its own task counts, but not an old copy over Ralph's word."""
        try:
            entry = find_entity(PlanFile(text, name="x").data, "tasks", 1) or {}
        except BadPlan:
            return
        said = entry.get("status")
        known, self.file_status = self.file_status, said
        if said in STATUSES and said != known and not (self.by_ralph and said == "pending"):
            self.status = said

    def current(self, kind: Kind) -> str:
        stale = self.draw(st.booleans())
        return self.base[kind] if stale else (self.plan.raw(kind) or b"").decode("utf-8", "replace")

    def legitimate(self, _: Kind) -> None:
        data = self.data("tasks")
        entry = find_entity(data, "tasks", 1) if data else None
        if data is None or entry is None:
            return
        entry["status"] = "done"
        if isinstance(entry.get("comments"), list):
            text = self.word()
            entry["comments"].append({"text": text, "author": "agent"})
            self.comments.add(text)
        self.write("tasks", PlanFile("", name="x").with_data(data).text)

    def garbage(self, kind: Kind) -> None:
        text = self.draw(
            st.sampled_from(["", "\x00\x01\x02", "features: [", "- a\n", "features: 3\n", "null",
                             "features:\n\t- x\n", "{}", "tasks: {a: b}\n", "features: []\n"])
            | st.text(max_size=40)
        )  # fmt: skip
        self.write(kind, text)

    def lines(self, kind: Kind) -> None:
        found = self.current(kind).splitlines(keepends=True)
        at = self.draw(st.integers(0, max(0, len(found) - 1)))
        how = self.draw(st.sampled_from(["half", "drop", "double", "tab", "junk", "swap"]))
        if how == "half":
            text = "".join(found)
            text = text[: self.draw(st.integers(0, len(text)))]
            self.write(kind, text)
            return
        if how == "drop":
            del found[at : at + self.draw(st.integers(1, 4))]
        elif how == "double":
            found[at:at] = found[at : at + self.draw(st.integers(1, 6))]
        elif how == "tab" and found:
            found[at] = found[at].replace("  ", "\t", 1)
        elif how == "junk":
            found.insert(at, self.draw(st.sampled_from(["x: [1\n", "  - 7\n", "foo\n", "a: b\n"])))
        elif found:
            found[at], found[-1] = found[-1], found[at]
        self.write(kind, "".join(found))

    def damage(self, kind: Kind) -> None:
        """Well-formed YAML that says the wrong thing."""
        try:
            data = PlanFile(self.current(kind), name="x").data
        except BadPlan:
            return
        items = data.get(kind)
        if not isinstance(items, list) or not items:
            return
        entry = self.draw(st.sampled_from(items))
        odd = st.sampled_from([None, "", 7, [], {}, ["x"], {"a": 1}, "replaced words", True, [3]])
        if not isinstance(entry, dict) or not entry:
            return
        how = self.draw(st.sampled_from(["set", "drop", "remove", "double", "add"]))
        field = self.draw(st.sampled_from(sorted(entry)))
        if how == "set":
            entry[field] = self.draw(odd)
        elif how == "drop":
            del entry[field]
        elif how == "remove":
            items.remove(entry)
        elif how == "double":
            items.append(dict(entry))
        else:
            entry[self.draw(st.sampled_from([*PROSE, "learnings", "odd", "current_state"]))] = (
                self.draw(odd)
            )
        self.write(kind, PlanFile("", name="x").with_data(data).text)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value.strip()


@settings(max_examples=examples(100))
@given(st.data())
def test_after_any_mangling_nothing_is_lost_and_everybody_elses_work_stands(
    choice: st.DataObject,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), choice.draw)
        actors = st.sampled_from(
            [world.agent, world.agent, world.ralph, world.person, world.somebody]
        )
        for actor in choice.draw(st.lists(actors, min_size=1, max_size=5)):
            actor()
            idle = actor == world.person
            world.guard.observe(world.snapshot, idle=idle)
            world.guard.observe(world.snapshot, idle=True)
        world.guard.check(world.snapshot, feature=OWN)

        files = [*world.plan.folder.iterdir(), *(world.plan.cache / "rejected").glob("*")]
        assert world.said <= world.words(*(file.read_text(errors="replace") for file in files))
        view = world.plan.load()  # it parses, and nothing in it is malformed
        found = {feature.name: feature for feature in view.features}
        for name, texts in world.learned.items():
            assert texts <= {x.text for x in found[name].learnings}
        for (name, field), value in world.prose.items():
            now = getattr(found[name], field)
            if name == OTHER:
                assert now == value
            elif value:
                assert now
        task = world.plan.task(1)
        assert (task.title, task.feature) == ("Build the form", OWN)
        assert task.status == world.status
        assert world.comments <= {comment.text for comment in task.comments}
        assert world.plan.task(2).status == "pending"
        assert world.guard.check(world.guard.snapshot(), feature=OWN).clean


@settings(max_examples=examples(60))
@given(st.binary(max_size=200) | st.none())
def test_whatever_bytes_an_agent_leaves_the_plan_is_there_again(raw: bytes | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(Path(folder))
        plan.folder.mkdir(parents=True)
        for kind, text in (("features", FEATURES), ("tasks", TASKS)):
            (plan.folder / f"{kind}.yaml").write_text(text)
        guard = Guard(plan)
        before = guard.snapshot()
        for kind in ("features", "tasks"):
            path = plan.folder / f"{kind}.yaml"
            path.unlink()
            if raw is not None:
                path.write_bytes(raw)
        guard.check(before, feature=OWN)
        view = plan.load()
        assert [f.name for f in view.features][:2] == [OWN, OTHER]
        assert len(view.features[0].learnings) >= 3
        assert [t.id for t in view.tasks][:2] == [1, 2]
