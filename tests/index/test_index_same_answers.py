"""The index is disposable: whatever happened, a new one gives the very same answers (F22)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
from examples import examples
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from remembering import ToyEmbedder, made, open_toy, shown

from ralph.memory.ralph import Ralph
from ralph.recall.search import Question
from ralph.records.iteration import ErrorSeen, FileTouched

# Few words, so that many records are alike and the order between equals matters.
WORDS = (
    "login form token cache worker retry index vector schema deploy Überprüfung 検索 _id".split()
)
QUESTIONS = [
    "login form",
    "cache worker retry",
    "vector index schema",
    "deploy",
    "Überprüfung 検索",
]
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


class Histories(RuleBasedStateMachine):
    """Random lives of a memory; after each step the index is compared with one built afresh."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ralph-same-"))
        self.home = self.root / "home"
        self.project = self.root / "project"
        self.memory: Ralph = open_toy(self.project, home=self.home)
        self.saved: bytes | None = None
        self.runs = 0

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            self.memory.close()
            shutil.rmtree(self.root)

    @property
    def journal(self) -> Path:
        return self.project / ".ralph" / "db" / "memory" / "auth.jsonl"

    @rule(summaries=st.lists(texts, min_size=1, max_size=4), title=texts, error=texts)
    def remember(self, summaries: list[str], title: str, error: str) -> None:
        many = []
        for text in summaries:
            self.runs += 1
            many.append(
                made(
                    text,
                    task_title=title,
                    errors=(ErrorSeen(error),),
                    files_touched=(FileTouched(f"src/{title.replace(' ', '/')}.py", "read"),),
                    session_id=f"run-{self.runs}",
                )
            )
        self.memory.feature("auth").remember_all(many)

    @rule(choice=st.integers(0, 1000), count=st.integers(1, 3))
    def forget(self, choice: int, count: int) -> None:
        ids = [hit.id for hit in self.memory.feature("auth").recent(1000)]
        if ids:
            self.memory.feature("auth").forget([ids[(choice + n) % len(ids)] for n in range(count)])

    @rule()
    def delete_the_index(self) -> None:
        self.memory.store.index.delete()

    @rule()
    def rebuild(self) -> None:
        self.memory.feature("auth").sync(afresh=True)

    @rule()
    def reopen(self) -> None:
        self.memory.close()
        self.memory = open_toy(self.project, home=self.home)

    @rule()
    def change_the_embedder_and_back(self) -> None:
        with open_toy(self.project, ToyEmbedder("toy:other", 16), home=self.home) as other:
            other.feature("auth").search("login form")

    @rule()
    def write_while_the_embedder_is_off(self) -> None:
        toy = self.memory.store.embedder
        assert isinstance(toy, ToyEmbedder)
        toy.off = True
        self.remember(["login form"], "token", "retry")
        toy.off = False

    @rule()
    def keep_a_copy_of_the_journal(self) -> None:
        if self.journal.exists():
            self.saved = self.journal.read_bytes()

    @rule()
    def merge_the_copy_in_front(self) -> None:
        """As git does: lines of another branch in the middle, some of them twice."""
        if self.saved is not None and self.journal.exists():
            self.journal.write_bytes(self.saved + self.journal.read_bytes())

    @rule()
    def merge_the_other_way_round(self) -> None:
        if self.journal.exists():
            lines = self.journal.read_bytes().splitlines(keepends=True)
            self.journal.write_bytes(b"".join(reversed(lines)))

    @rule()
    def check_the_copy_out(self) -> None:
        if self.saved is not None:
            self.journal.unlink(missing_ok=True)
            self.journal.write_bytes(self.saved)

    @invariant()
    def a_new_index_answers_the_same(self) -> None:
        if not (hasattr(self, "memory") and self.memory.project.exists):
            return
        here = self._answers(self.memory)
        fresh = self.root / "fresh"
        shutil.copytree(self.project / ".ralph" / "db", fresh / ".ralph" / "db")
        try:
            with open_toy(fresh, home=self.home) as other:
                assert self._answers(other) == here
        finally:
            shutil.rmtree(fresh)

    def _answers(self, memory: Ralph) -> list[object]:
        auth = memory.feature("auth")
        answers: list[object] = []
        for question in QUESTIONS:
            for limit in (3, 20):
                answer = auth.search(question, limit=limit, min_score=0.0)
                assert answer.notes == ()
                answers.append((shown(answer), [(hit.why, hit.parts) for hit in answer]))
        return answers


Histories.TestCase.settings = settings(
    max_examples=examples(12), stateful_step_count=8, deadline=None
)
TestAnyHistory = Histories.TestCase


def test_equal_records_stand_in_the_same_order_whatever_the_journal_went_through(
    memory: Ralph, project: Path
) -> None:
    auth = memory.feature("auth")
    auth.remember_all([made("login form validation", session_id=f"run-{n}") for n in range(40)])
    auth.forget([hit.id for hit in auth.recent(40)][3:30:3])
    journal = project / ".ralph" / "db" / "memory" / "auth.jsonl"
    journal.write_bytes(b"".join(reversed(journal.read_bytes().splitlines(keepends=True))))
    for limit in (1, 7, 20):
        asked = Question("login form", limit, 0.0, every=True)
        before = memory.store.ask([auth], asked)
        assert len({hit.score for hit in before}) == 1
        assert len(before) == limit
        memory.store.index.delete()
        after = memory.store.ask([auth], asked)
        assert shown(after) == shown(before)
        assert [hit.parts for hit in after] == [hit.parts for hit in before]
        journal.write_bytes(b"".join(reversed(journal.read_bytes().splitlines(keepends=True))))
