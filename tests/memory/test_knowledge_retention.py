"""A year after it was published an entry is gone, from every file and every answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from knowing import ids_indexed, journals, lesson, lines, opened, published_at, solved
from remembering import files_holding

from ralph.errors import BadInput, BadSetting
from ralph.memory.checkpoints import prune_if_due
from ralph.memory.project import Project
from ralph.memory.store import days_before, is_before
from ralph.records import utc
from ralph.text.tokens import tokens

# Answers know what time it is, so this is no fixed day.
NOW = datetime.now(UTC).replace(microsecond=0)
CRANE = "The zyxvoqueing crane stops when the plimfoxations are wet"
DRY = "Dry the quuxwarbles with warm air"
WORDS = ("zyxvoqueing", "plimfoxations", "quuxwarbles")
# The words, and what the index keeps of them.
TRACES = sorted({*WORDS, *(stem for word in WORDS for stem in tokens(word))})


def at(days: float) -> str:
    """A moment so many days before now."""
    return (NOW - timedelta(days=days)).isoformat()


def test_a_year_counts_from_the_checkpoint_and_not_from_the_capture(project: Path) -> None:
    with opened(project) as knowledge:
        for n, days in enumerate((365.5, 364.5)):
            knowledge.capture(lesson(n))
            published_at(knowledge, at(days))
        waiting = knowledge.capture(lesson(2))  # staged: it has no date yet

        would = knowledge.prune(dry_run=True, at=NOW)
        done = knowledge.prune(at=NOW)
        again = knowledge.prune(at=NOW)

        assert would == done
        assert (done.entries, done.patterns, done.before) == (1, 1, utc(at(365)))
        assert (again.entries, again.patterns) == (0, 0)
        assert [one.solution for one in knowledge.patterns()] == [lesson(1)["solution_steps"]]
        assert [one.id for one in knowledge.staged()] == [waiting.id]
        # However old what is staged may be.
        assert knowledge.prune(at=NOW + timedelta(days=10_000)).entries == 1
        assert [one.id for one in knowledge.staged()] == [waiting.id]
        assert ids_indexed(knowledge) == []


@pytest.mark.parametrize(
    ("published", "expired"),
    [
        ("2025-11-15T11:59:59Z", True),
        ("2025-11-15T12:00:00Z", False),
        ("2025-11-15T12:00:00.001Z", False),
        ("2025-11-15T12:30:00+01:00", True),
        ("", False),
        ("yesterday", False),
    ],
)
def test_to_the_second(published: str, expired: bool) -> None:
    before = days_before(365, datetime(2026, 11, 15, 12, tzinfo=UTC))
    assert is_before(published, before) is expired


def test_no_file_holds_a_byte_of_what_was_pruned(project: Path, home: Path) -> None:
    with opened(project) as knowledge:
        knowledge.capture(solved(CRANE, DRY, technology="drobnaketic"))
        [old] = published_at(knowledge, at(400))
        knowledge.capture(solved("The lighthouse lamp flickers", "Change the fuse"))
        published_at(knowledge, at(1))
        knowledge.sync()
    assert files_holding(home, *TRACES)

    with opened(project) as knowledge:
        assert knowledge.prune(at=NOW).entries == 1
        assert files_holding(home, *TRACES, "drobnaketic") == []
        assert knowledge.search(CRANE, min_score=0.0, limit=20)[0].record.solution_steps == (
            "Change the fuse"
        )
        assert knowledge.verify()[1] == []
    assert files_holding(home, *TRACES, "drobnaketic") == []
    stone = next(line for line in lines(home) if line["kind"] == "forgotten")
    assert (stone["id"], stone["reason"]) == (old, "older than knowledge_keep_days")


def test_an_outcome_reported_lately_prolongs_nothing_and_goes_along(
    project: Path, home: Path
) -> None:
    with opened(project, knowledge_keep_days=10_000) as knowledge:
        knowledge.capture(solved(CRANE, DRY))
        published_at(knowledge, at(400))
        [one] = knowledge.patterns()
        knowledge.report_outcome(one.id, True, project="billing", note="the vlimpexting helped")
    with opened(project) as knowledge:
        assert knowledge.prune(at=NOW).patterns == 1
        assert knowledge.patterns() == []
        assert [line["kind"] for line in lines(home)].count("outcome") == 0
    assert files_holding(home, "vlimpexting") == []


def test_a_pattern_keeps_its_younger_entries_and_its_outcomes(project: Path) -> None:
    with opened(project) as knowledge:
        for n in range(3):
            knowledge.capture(solved(CRANE, DRY, subject=f"Pier {n}"))
        knowledge.checkpoint()
        [one] = knowledge.patterns()
        knowledge.report_outcome(one.id, True)
        later = datetime.now(UTC) + timedelta(days=300)
        # Published by another project ten months later.
        knowledge.capture(solved(CRANE, DRY, project="billing"))
        knowledge.checkpoint("billing")
        young = knowledge.of_project("billing")[0].id
        [file] = [one for one in journals(knowledge.store.home) if one.stem == "billing"]
        raw = file.read_bytes()
        now = next(
            line["at"]
            for line in lines(knowledge.store.home)
            if line["kind"] == "checkpoint" and line["body"]["project"] == "billing"
        )
        file.write_bytes(raw.replace(now.encode(), later.isoformat().encode()))

        done = knowledge.prune(at=later + timedelta(days=70))

        assert (done.entries, done.patterns) == (3, 0)
        [left] = knowledge.patterns()
        assert (left.id, left.entries, left.worked) == (one.id, (young,), 1)


def test_it_is_due_once_a_day(project: Path) -> None:
    with opened(project) as knowledge:
        assert prune_if_due(knowledge, at=NOW) is not None
        knowledge.capture(lesson(0))
        published_at(knowledge, at(400))
        assert prune_if_due(knowledge, at=NOW + timedelta(hours=23)) is None
        again = prune_if_due(knowledge, at=NOW + timedelta(hours=24))
    assert again is not None
    assert again.entries == 1


def test_a_clock_that_was_wrong_does_not_stop_it_for_ever(project: Path, home: Path) -> None:
    with opened(project) as knowledge:
        prune_if_due(knowledge, at=NOW + timedelta(days=400))
        assert prune_if_due(knowledge, at=NOW) is not None
        (home / "cache" / "pruned-knowledge").write_text("some day\n", encoding="ascii")
        assert prune_if_due(knowledge, at=NOW) is not None


def test_a_checkpoint_prunes_by_itself_once_a_day(project: Path, home: Path) -> None:
    long_ago = (datetime.now(UTC) - timedelta(days=400)).isoformat()
    with opened(project) as knowledge:
        knowledge.capture(solved(CRANE, DRY))
        published_at(knowledge, long_ago)
        knowledge.capture(lesson(0))
        knowledge.checkpoint()
        assert files_holding(home, *TRACES) == []
        knowledge.capture(solved(CRANE, DRY, subject="Again"))
        published_at(knowledge, f"{long_ago[:-6]}Z")
        knowledge.checkpoint()
        assert files_holding(home, *TRACES)  # not again today


def test_what_expired_can_be_learned_anew(project: Path) -> None:
    with opened(project) as knowledge:
        first = knowledge.capture(solved(CRANE, DRY))
        published_at(knowledge, at(400))
        knowledge.prune(at=NOW)

        second = knowledge.capture(solved(CRANE, DRY))
        assert second.id != first.id
        assert (second.fresh, second.staged) == (True, True)
        assert knowledge.checkpoint().new_patterns == 1
        [one] = knowledge.query_for_failure(CRANE)
        assert (one.entries, one.success_count) == ((second.id,), 1)
        # And once more.
        knowledge.prune(at=datetime.now(UTC) + timedelta(days=366))
        third = knowledge.capture(solved(CRANE, DRY))
        assert len({first.id, second.id, third.id}) == 3
        assert knowledge.capture(solved(CRANE, DRY)).id == third.id


def test_what_a_person_forgot_stays_forgotten(project: Path, home: Path) -> None:
    with opened(project) as knowledge:
        published = [knowledge.capture(plain).id for plain in (solved(CRANE, DRY), lesson(0))]
        knowledge.checkpoint()
        ids = [*published, knowledge.capture(lesson(1)).id]
        assert sorted(knowledge.forget([*ids, "unknown"], reason="private")) == sorted(ids)
        assert files_holding(home, *TRACES) == []
        assert knowledge.patterns() == []
        assert knowledge.staged() == []
        for plain in (solved(CRANE, DRY), lesson(0), lesson(1)):
            with pytest.raises(BadInput, match="was forgotten, and stays so"):
                knowledge.capture(plain)
        # Another project may learn it for itself.
        assert knowledge.capture(solved(CRANE, DRY, project="billing")).fresh


def test_what_expired_and_was_then_forgotten_stays_forgotten(project: Path) -> None:
    with opened(project) as knowledge:
        knowledge.capture(solved(CRANE, DRY))
        published_at(knowledge, at(400))
        knowledge.prune(at=NOW)
        knowledge.forget([knowledge.capture(solved(CRANE, DRY)).id])
        with pytest.raises(BadInput, match="stays so"):
            knowledge.capture(solved(CRANE, DRY))


def test_every_project_is_pruned_and_how_long_is_the_users_to_say(project: Path) -> None:
    with opened(project, knowledge_keep_days=30) as knowledge:
        for name in ("", "billing", "shop"):
            knowledge.capture(lesson(0, project=name))
            published_at(knowledge, at(31), project=name)
        done = knowledge.prune(at=NOW)
        assert (done.entries, done.before) == (3, utc(at(30)))
    Project(project).settings_file.write_text('{"knowledge_keep_days": 1}', encoding="utf-8")
    with pytest.raises(BadSetting, match="cannot be set in a project's file"), opened(project):
        pass
