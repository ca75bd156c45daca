"""`ralph learning`: added once, contradictions shown, removed for good, reviewed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commanding import Line

REDIS = "Use Redis for sessions."
NO_REDIS = "Don't use Redis for sessions."


@pytest.fixture
def ralph(words: None, ralph: Line, project: Path) -> Line:
    (project / ".ralph/db/features.yaml").write_text(
        "features: [{name: auth}, {name: billing}]\n", encoding="utf-8"
    )
    (project / ".ralph/db/tasks.yaml").write_text(
        "tasks: [{id: 1, feature: auth, title: Build the form}]\n", encoding="utf-8"
    )
    return ralph


def add(ralph: Line, text: str, *flags: str) -> Any:
    return ralph.well("learning", "add", text, "--feature", "auth", *flags, "--json").json


def listed(ralph: Line) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ralph.well("learning", "list", "--feature", "auth", "--json").json
    return found


def test_a_learning_as_programs_read_it(ralph: Line) -> None:
    added = add(ralph, REDIS, "--reason", "two servers", "--task", "1")

    learning = added["learning"]
    assert added == {"what": "added", "learning": learning, "conflicts": [], "evicted": None}
    assert learning == {
        "id": learning["id"],
        "text": REDIS,
        "source": "human",
        "iteration": None,
        "created": learning["created"],
        "hit_count": 1,
        "reviewed": False,
        "reason": "two servers",
        "task_id": 1,
        "last_seen": None,
        "provenance": "[human, task 1]",
    }
    assert listed(ralph) == [{**learning, "stale": False, "conflicts": []}]


def test_a_near_duplicate_is_not_added_twice(ralph: Line) -> None:
    first = add(ralph, REDIS)["learning"]

    ran = ralph.well("learning", "add", "use redis for sessions", "--feature", "auth")

    assert ran.out == f"Not added: too close to {first['id']}: {REDIS}\n"
    assert [one["hit_count"] for one in listed(ralph)] == [1]  # an echo is no evidence (F10)


def test_f21_a_contradiction_is_kept_and_shown(ralph: Line) -> None:
    first = add(ralph, REDIS)["learning"]

    ran = ralph.well("learning", "add", NO_REDIS, "--feature", "auth")

    assert ran.out.splitlines() == [f"Added: {NO_REDIS}", f"It contradicts: {first['id']} {REDIS}"]
    one, other = listed(ralph)
    assert one["conflicts"] == [other["id"]]
    assert other["conflicts"] == [one["id"]]
    shown = ralph.well("learning", "list", "--feature", "auth").out
    assert f"          contradicts {other['id']}\n" in shown
    assert ralph.well("plan", "check").out.startswith("warning ")


@pytest.mark.parametrize("by", ["id", "text", "number"])
def test_what_a_person_removed_is_not_learned_again(ralph: Line, by: str) -> None:
    learning = add(ralph, REDIS)["learning"]
    ref = {"id": learning["id"], "text": REDIS, "number": "1"}[by]

    gone = ralph.well("learning", "remove", ref, "--feature", "auth", "--reason", "old", "--json")

    assert gone.json["text"] == REDIS
    assert listed(ralph) == []
    again = ralph.well("learning", "add", REDIS, "--feature", "auth", "--source", "agent")
    assert again.out == f"Not added, because it was removed before: {REDIS}\n"
    assert listed(ralph) == []
    assert add(ralph, REDIS)["what"] == "added"  # a person may change their mind


def test_a_review_is_noted_with_better_words(ralph: Line) -> None:
    learning = add(ralph, REDIS, "--source", "agent")["learning"]

    ran = ralph.well(
        *("learning", "review", learning["id"], "--feature", "auth"),
        *("--text", "Sessions live in Redis.", "--reason", "seen in app.py", "--json"),
    )

    reviewed = ran.json
    assert reviewed["reviewed"] is True
    assert reviewed["source"] == "reviewed"
    assert (reviewed["text"], reviewed["reason"]) == ("Sessions live in Redis.", "seen in app.py")
    assert [one["text"] for one in listed(ralph)] == ["Sessions live in Redis."]


@pytest.mark.parametrize("task", ["1", ""])
def test_what_an_agent_adds_in_a_run_is_an_agents_word(
    ralph: Line, monkeypatch: pytest.MonkeyPatch, project: Path, task: str
) -> None:
    monkeypatch.setenv("RALPH_TASK", task)
    monkeypatch.setenv("RALPH_STARTED", "2020-01-01T00:00:00.000Z")

    added = add(ralph, REDIS)
    refused = ralph("learning", "add", "x", "--feature", "auth", "--source", "human")
    ralph.well("learning", "remove", "1", "--feature", "auth")

    assert added["learning"]["source"] == "agent"
    assert refused.code == 1
    assert refused.complaint == ("ralph: an agent cannot speak for a person. Leave --source out.")
    assert "by: agent" in (project / ".ralph/db/features.yaml").read_text(encoding="utf-8")


def test_f4_an_old_learning_of_the_extractors_is_marked_stale(ralph: Line, project: Path) -> None:
    (project / ".ralph/db/features.yaml").write_text(
        "features: [{name: auth, learnings: [{text: Old, source: auto, iteration: 3}]}]\n",
        encoding="utf-8",
    )
    ralph.record("auth", {"summary": "much later", "iteration_number": 30})

    assert [one["stale"] for one in listed(ralph)] == [True]
    assert "[STALE] Old\n" in ralph.well("learning", "list", "--feature", "auth").out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("remove 7 --feature auth", "no learning '7'. Give its id, its text, or a number from 1"),
        ("review zz --feature auth", "no learning 'zz'. Give its id, its text, or a number"),
        ("remove 1 --feature billing", "no learning '1'. The feature has none."),
        ("add x --feature billing --task 1", "task 1 belongs to 'auth', not to 'billing'."),
    ],
)
def test_what_cannot_be_is_refused(ralph: Line, line: str, told: str) -> None:
    add(ralph, REDIS)

    ran = ralph("learning", *line.split())

    assert ran.code == 1
    assert ran.complaint.startswith(f"ralph: {told}")


def test_an_empty_learning_is_refused_and_an_empty_list_says_so(ralph: Line) -> None:
    ran = ralph("learning", "add", "  ", "--feature", "auth")

    assert ran.code == 1
    assert ran.complaint == "ralph: a learning without text. Write what was learned."
    assert ralph.well("learning", "list", "--feature", "auth").out == (
        "auth has no learnings yet.\n"
    )


def test_f2_full_learnings_refuse_and_the_extractors_oldest_makes_room(
    ralph: Line, project: Path
) -> None:
    words = [f"{a}{b}" for a in "abcdefgh" for b in "qrstuvwxyz"]
    file = project / ".ralph/db/features.yaml"
    texts = [f"{{text: {one} fact, source: human}}" for one in words[:50]]
    file.write_text(f"features: [{{name: auth, learnings: [{', '.join(texts)}]}}]\n", "utf-8")

    full = ralph("learning", "add", REDIS, "--feature", "auth")
    assert full.complaint == "ralph: Learnings full - review needed. Review or remove some first."

    file.write_text(file.read_text("utf-8").replace("source: human", "source: auto", 1), "utf-8")
    ran = ralph.well("learning", "add", REDIS, "--feature", "auth")
    assert ran.out.splitlines() == [f"Added: {REDIS}", "It replaced: aq fact"]


def test_f31_an_agent_is_asked_for_a_reason_and_may_add_it(
    ralph: Line, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.setenv("RALPH_TASK", "1")
    said = ralph.well("learning", "add", REDIS, "--feature", "auth").out
    assert "It has no reason. Run it again with --reason" in said
    again = ralph.well("learning", "add", REDIS, "--feature", "auth", "--reason", "app.py").out
    assert "The reason is added to " in again
    assert [each["reason"] for each in listed(ralph)] == ["app.py"]


def test_f31_an_agent_adds_no_reason_to_a_persons_learning(
    ralph: Line, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    add(ralph, REDIS)
    monkeypatch.setenv("RALPH_TASK", "1")
    ralph.well("learning", "add", REDIS, "--feature", "auth", "--reason", "mine")
    assert [each["reason"] for each in listed(ralph)] == [None]


def test_f36_what_cannot_be_read_is_named_by_list_and_show(ralph: Line, project: Path) -> None:
    file = project / ".ralph/db/features.yaml"
    file.write_text("features:\n- name: auth\n  learnings:\n  - Fine.\n  - {txt: oops}\n")
    for words in (
        ["learning", "list"],
        ["learning", "list", "--feature", "auth"],
        ["feature", "show", "auth"],
        ["feature", "list"],
    ):
        assert "features.yaml:5:5" in ralph.well(*words).err, words
