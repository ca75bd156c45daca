"""A run that cannot begin says why, where and what to do, and nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from looping import FEATURES, TASKS, Loop, planned, shell

from ralph.errors import BadInput, BadPlan, NotFound


def refused(loop: Loop, tmp_path: Path, error: type[BadInput] = BadInput, **options: str) -> str:
    """What the run is refused with; its agent must not have been started."""
    agent = shell(tmp_path, "touch ../started")
    with pytest.raises(error) as told:
        loop(agent, **options)
    assert not (tmp_path / "started").exists()
    assert loop.facts("started") == []
    assert loop.unfinished == []
    return str(told.value)


def test_a_plan_that_does_not_parse_names_file_line_and_column(tmp_path: Path) -> None:
    broken = TASKS.replace("  title: Sign people out\n", "  title: [Sign people out\n")
    loop = Loop(planned(tmp_path / "project", tasks=broken))
    said = refused(loop, tmp_path, BadPlan)
    file, line, column, _ = said.split(":", 3)
    assert file == ".ralph/db/tasks.yaml"
    assert int(line) >= 9
    assert int(column) >= 1


def test_f36_a_malformed_entry_names_its_place_too(tmp_path: Path) -> None:
    broken = FEATURES.replace(
        "  - text: The cookie must be set before the redirect.\n", "  - 7\n  -\n"
    )
    loop = Loop(planned(tmp_path / "project", broken))
    assert refused(loop, tmp_path, BadPlan).startswith(".ralph/db/features.yaml:12:")


def test_an_unknown_feature_names_those_there_are(loop: Loop, tmp_path: Path) -> None:
    said = refused(loop, tmp_path, NotFound, feature="payments")
    assert "no feature 'payments'" in said
    assert "There are: auth, search." in said


def test_an_unknown_task_names_those_there_are(loop: Loop, tmp_path: Path) -> None:
    said = refused(loop, tmp_path, NotFound, task_id="99")
    assert "no task '99'" in said
    assert "There are: 1, 2, 3." in said


def test_a_circle_of_tasks_is_named_once_round(tmp_path: Path) -> None:
    tasks = """\
tasks:
- {id: 1, feature: auth, title: A, blocked_by: [3]}
- {id: 2, feature: auth, title: B, blocked_by: [1]}
- {id: 3, feature: auth, title: C, blocked_by: [2]}
"""
    loop = Loop(planned(tmp_path / "project", tasks=tasks))
    said = refused(loop, tmp_path)
    assert "in a circle: 1 -> 3 -> 2 -> 1." in said
    assert "blocked_by" in said


def test_an_agent_that_is_not_there_is_refused_at_the_start(loop: Loop) -> None:
    with pytest.raises(BadInput, match="'no-such-agent' was not found"):
        loop("no-such-agent --fast")
    assert loop.facts("started") == []


def test_an_agent_that_cannot_be_executed_leaves_no_iteration_behind(
    loop: Loop, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no program at all")
    broken.chmod(0o755)
    with pytest.raises(BadInput, match="cannot be started: Exec format error"):
        loop(str(broken))
    assert loop.unfinished == []
    loop("/bin/true", max_iterations=1)
    assert loop.facts("recovered") == []
    assert len(loop.told()) == 1


def test_a_journal_of_a_newer_version_does_not_stop_the_loop(loop: Loop) -> None:
    journal = loop.root / ".ralph" / "db" / "memory" / "auth.jsonl"
    journal.parent.mkdir(parents=True, exist_ok=True)
    newer = '{"v":99,"kind":"iteration","id":"x","number":41,"body":{"thoughts":[]}}\n'
    journal.write_text(newer)
    loop("/bin/true", max_iterations=1)
    assert loop.outcomes == ["failure"]
    assert len(loop.told()) == 1
    assert journal.read_text().startswith(newer)
