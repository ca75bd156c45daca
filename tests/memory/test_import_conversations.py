"""Claude Code's sessions brought in: every one of a machine, each exchange once."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from capturing import SECRET
from importing import (
    Kept,
    aged,
    answered,
    asked,
    grow,
    import_sessions,
    just_now,
    turn,
    working,
    write,
)
from places import FIXTURES

from ralph.errors import JournalBusy, JournalError, NotFound
from ralph.memory.conversation_stream import ConversationImport
from ralph.memory.project import Project
from ralph.memory.sessions import ABANDONED_S, SETTLED_S, Importer
from ralph.plan.model import Feature, PlanView, Task
from ralph.prompt.build import (
    PromptFacts,
    PromptLimits,
    ReviewFacts,
    braindump_prompt,
    review_prompt,
    task_prompt,
)
from ralph.records.conversation import conversation_id

RECORDED = FIXTURES / "claude_code" / "transcript_session.jsonl"


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """Where the client keeps its sessions."""
    folder = tmp_path / "sessions"
    folder.mkdir()
    return folder


def bring_in(kept: Kept, sessions: Path, within: Project | None = None) -> ConversationImport:
    return import_sessions("claude-code", kept.memory, folder=sessions, within=within)


def counts(came: ConversationImport) -> tuple[int, int, int]:
    return came.conversations, came.exchanges, came.known


def test_every_session_becomes_a_conversation_of_its_project(
    kept: Kept, sessions: Path, project: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "no-project"
    write(sessions / "-a" / "one.jsonl", [*turn("one", 1, project), *turn("one", 2, project)])
    write(sessions / "-a" / "two.jsonl", turn("two", 1, project / "src"))
    write(sessions / "-b" / "three.jsonl", turn("three", 1, elsewhere))

    came = bring_in(kept, sessions)

    assert counts(came) == (3, 4, 0)
    assert came.complaints == came.unread == []
    own, other = Project(project).id, str(uuid.uuid5(uuid.NAMESPACE_URL, elsewhere.as_uri()))
    assert kept.streams() == sorted([own, other])
    assert {one.project for one in kept.conversations(own)} == {"project"}
    [third] = kept.conversations(other)
    assert (third.id, third.project) == (conversation_id("claude-code", "three"), "no-project")
    assert (third.title, third.source) == ("Question 1 of three?", "claude-code")
    assert third.created == "2026-11-02T10:00:02Z"
    assert kept.said(other) == [("Question 1 of three?", "Answer 1 of three.")]


def test_a_session_that_names_no_folder_belongs_to_no_project(kept: Kept, sessions: Path) -> None:
    lines = turn("one", 1, "")
    write(sessions / "one.jsonl", lines)
    bring_in(kept, sessions)
    assert kept.streams() == ["general"]


def test_a_folder_of_another_system_is_a_project_of_its_own(kept: Kept, sessions: Path) -> None:
    write(sessions / "one.jsonl", turn("one", 1, "D:\\work\\shop"))
    bring_in(kept, sessions)
    assert [one.project for one in kept.conversations()] == ["shop"]


def test_a_session_that_ralph_itself_ran_is_no_conversation(
    kept: Kept, sessions: Path, project: Path
) -> None:
    feature, task = Feature(name="auth"), Task(id=1, feature="auth", title="Add the login form")
    facts = PromptFacts(feature=feature, task=task, current_state="")
    review = ReviewFacts(learnings=(), all_learnings=True)
    prompts = [
        task_prompt(facts, PromptLimits()),
        review_prompt(facts, review, PromptLimits()),
        braindump_prompt("A login form.", PlanView(), PromptLimits(), server=None),
    ]
    for number, prompt in enumerate(prompts):
        write(sessions / f"{number}.jsonl", turn(f"{number}", 1, project, question=prompt.text))
    write(sessions / "own.jsonl", turn("own", 1, project))

    assert counts(bring_in(kept, sessions)) == (1, 1, 0)


def test_another_agents_message_is_no_persons(kept: Kept, sessions: Path, project: Path) -> None:
    told = '<teammate-message teammate_id="lead">Add the form.</teammate-message>'
    lines = [*turn("one", 1, project), *turn("one", 2, project, question=told)]
    write(sessions / "one.jsonl", lines)

    bring_in(kept, sessions)

    [_, (asked_by, _)] = kept.said(Project(project).id)
    assert asked_by == "lead: Add the form."


def test_a_teammates_own_session_is_an_agents_work(
    kept: Kept, sessions: Path, project: Path
) -> None:
    told = '<teammate-message teammate_id="lead">Never push. Add the form.</teammate-message>'
    note = '<teammate-message teammate_id="lead">{"type":"idle_notification"}</teammate-message>'
    lines = [
        *turn("one", 1, project, question=told),
        *turn("one", 2, project, question=f"Another Claude session sent a message:\n{note}"),
    ]
    write(sessions / "one.jsonl", lines)

    bring_in(kept, sessions)

    [first, second] = kept.exchanges(Project(project).id)
    assert first.user == "lead: Never push. Add the form."
    assert second.user == ""
    assert not first.decisions


def test_the_tokens_of_a_subagent_count(kept: Kept, sessions: Path, project: Path) -> None:
    first, last = asked("one", 1, "Go.", str(project)), answered("one", 9, "Gone.", str(project))
    result = {"type": "tool_result", "tool_use_id": "t", "content": "Done."}
    told = asked("one", 3, "", str(project), toolUseResult={"totalTokens": 1000, "agentId": "a"})
    told["message"]["content"] = [result]
    write(sessions / "one.jsonl", [first, told, last])

    bring_in(kept, sessions)

    [exchange] = kept.exchanges(Project(project).id)
    assert exchange.tokens_used == 1015


def test_within_a_project_the_sessions_of_others_are_left_out(
    kept: Kept, sessions: Path, project: Path, tmp_path: Path
) -> None:
    write(sessions / "one.jsonl", turn("one", 1, project))
    write(sessions / "two.jsonl", turn("two", 1, tmp_path / "other"))

    assert counts(bring_in(kept, sessions, within=Project(project))) == (1, 1, 0)
    assert kept.said() == [("Question 1 of one?", "Answer 1 of one.")]
    assert counts(bring_in(kept, sessions)) == (1, 1, 0)  # the other one, now


def test_the_same_again_brings_in_nothing(kept: Kept, sessions: Path, tmp_path: Path) -> None:
    write(sessions / "one.jsonl", turn("one", 1, tmp_path))
    bring_in(kept, sessions)
    before = kept.lines()

    again = bring_in(kept, sessions)

    assert (counts(again), again.unchanged) == ((0, 0, 0), 1)
    assert kept.lines() == before


def test_without_its_notes_everything_is_read_again_and_nothing_doubled(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    write(sessions / "one.jsonl", [*turn("one", 1, tmp_path), *turn("one", 2, tmp_path)])
    bring_in(kept, sessions)
    before = kept.lines()
    notes = kept.home / "cache" / "imports" / "claude-code.json"
    for damaged in (b"", b'{"version": 9, "files": {}}', b"[1"):
        notes.write_bytes(damaged)
        assert counts(bring_in(kept, sessions)) == (0, 0, 2)
    notes.unlink()
    assert counts(bring_in(kept, sessions)) == (0, 0, 2)
    assert kept.lines() == before


def test_a_session_that_grew_is_read_on(kept: Kept, sessions: Path, tmp_path: Path) -> None:
    file = write(sessions / "one.jsonl", [b"garbage\n", *turn("one", 1, tmp_path)])
    assert [str(one) for one in bring_in(kept, sessions).complaints] == [
        f"{file}:1: is not JSON; skipped"
    ]
    grow(file, [*turn("one", 2, tmp_path), b"{torn\n"])

    came = bring_in(kept, sessions)

    assert counts(came) == (1, 1, 0)  # what was there before is not even looked at
    assert [one.line for one in came.complaints] == [6]
    assert len(kept.exchanges()) == 2


def test_a_file_that_was_replaced_is_read_from_its_beginning(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    file = write(sessions / "one.jsonl", turn("one", 1, tmp_path))
    bring_in(kept, sessions)
    longer = [*turn("one", 7, tmp_path), *turn("one", 8, tmp_path), *turn("one", 9, tmp_path)]
    write(file, longer)
    assert counts(bring_in(kept, sessions)) == (1, 3, 0)


def test_what_is_under_way_is_left_for_the_next_time(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    age_s = ABANDONED_S / 2
    lines = just_now([*turn("one", 1, tmp_path), *working("one", 2, tmp_path)], age_s=age_s)
    file = write(sessions / "one.jsonl", lines, age_s=age_s)

    first = bring_in(kept, sessions)
    assert (counts(first), first.waiting) == ((1, 1, 0), 1)
    again = bring_in(kept, sessions)
    assert (counts(again), again.waiting) == ((0, 0, 0), 1)

    done = just_now([answered("one", 9, "Done 2.", str(tmp_path))], age_s=SETTLED_S * 2)
    grow(file, done, age_s=SETTLED_S * 2)
    last = bring_in(kept, sessions)
    assert (counts(last), last.waiting) == ((1, 1, 0), 0)
    assert kept.said() == [
        ("Do 2.", "Done 2."),
        ("Question 1 of one?", "Answer 1 of one."),
    ]


def test_an_answer_that_was_written_this_moment_may_go_on(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    file = write(sessions / "one.jsonl", just_now(turn("one", 1, tmp_path)), age_s=0)
    assert bring_in(kept, sessions).waiting == 1
    aged(file, SETTLED_S + 1)
    assert counts(bring_in(kept, sessions)) == (1, 1, 0)


def test_a_session_that_was_only_copied_just_now_is_over(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    title = {"type": "ai-title", "aiTitle": "Copied", "sessionId": "one"}
    write(sessions / "one.jsonl", [*turn("one", 1, tmp_path), title], age_s=0)
    write(sessions / "two.jsonl", working("two", 1, tmp_path), age_s=0)
    lines = [*turn("three", 1, tmp_path), *just_now(turn("three", 2, tmp_path))]
    write(sessions / "three.jsonl", lines, age_s=0)

    came = bring_in(kept, sessions)

    assert (counts(came), came.waiting) == ((3, 3, 0), 1)


def test_the_file_that_nobody_writes_to_any_more_ends_interrupted(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    lines = just_now(working("one", 1, tmp_path), age_s=ABANDONED_S / 2)
    file = write(sessions / "one.jsonl", lines, age_s=ABANDONED_S / 2)
    assert bring_in(kept, sessions).waiting == 1

    clock = file.stat().st_mtime + ABANDONED_S + 1
    importer = Importer("claude-code", kept.store, folder=sessions, clock=lambda: clock)
    assert counts(importer.once()) == (1, 1, 0)

    assert [(one.user, one.status) for one in kept.exchanges()] == [("Do 1.", "interrupted")]
    assert counts(importer.once()) == (0, 0, 0)


def test_a_line_that_is_being_written_is_read_when_it_is_whole(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    file = write(sessions / "one.jsonl", [*turn("one", 1, tmp_path), b'{"type": "us'], age_s=60)
    assert (counts(came := bring_in(kept, sessions)), came.complaints) == ((1, 1, 0), [])
    rest = b'er", "uuid": "x", "sessionId": "one", "message": {"content": "More?"}}\n'
    grow(file, [rest, answered("one", 8, "More.", str(tmp_path))])
    assert counts(came := bring_in(kept, sessions)) == (1, 1, 0)
    assert came.complaints == []
    assert ("More?", "More.") in kept.said()


def test_a_last_line_that_nobody_ended_is_read_in_the_end(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    question, answer = turn("one", 1, tmp_path)
    last = json.dumps(answer).encode()  # the client was killed before the line's end
    file = write(sessions / "one.jsonl", [question, last], age_s=ABANDONED_S / 2)
    assert counts(bring_in(kept, sessions)) == (0, 0, 0)
    clock = file.stat().st_mtime + ABANDONED_S + 1
    importer = Importer("claude-code", kept.store, folder=sessions, clock=lambda: clock)
    assert counts(importer.once()) == (1, 1, 0)
    assert kept.said() == [("Question 1 of one?", "Answer 1 of one.")]
    grow(file, [b"\n", *turn("one", 2, tmp_path)])
    assert counts(bring_in(kept, sessions))[:2] == (1, 1)


def test_sub_agents_give_no_conversation_of_their_own(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    below = [
        asked("one", 1, "Look around.", str(tmp_path), isSidechain=True, agentId="a1"),
        answered("one", 2, "Seen.", str(tmp_path), isSidechain=True, agentId="a1"),
    ]
    write(sessions / "-a" / "one.jsonl", turn("one", 1, tmp_path))
    write(sessions / "-a" / "agent-a1.jsonl", turn("agent-a1", 1, tmp_path))
    write(sessions / "-a" / "one" / "subagents" / "x.jsonl", turn("x", 1, tmp_path))
    write(sessions / "-a" / "other.jsonl", below)
    assert counts(bring_in(kept, sessions)) == (1, 1, 0)


def test_a_recorded_session_comes_in_whole(kept: Kept, sessions: Path) -> None:
    write(sessions / "-home-dev-shop" / "s.jsonl", [RECORDED.read_bytes()])
    came = bring_in(kept, sessions)
    assert came.exchanges == len(kept.exchanges()) > 5
    assert came.complaints == []
    assert counts(bring_in(kept, sessions)) == (0, 0, 0)


def test_secrets_never_reach_the_journal(kept: Kept, sessions: Path, tmp_path: Path) -> None:
    write(sessions / "one.jsonl", turn("one", 1, tmp_path, question=f"Use {SECRET} for it."))
    bring_in(kept, sessions)
    [file] = (kept.home / "journal" / "conversations").glob("*.jsonl")
    assert SECRET not in file.read_text(encoding="utf-8")
    assert "[redacted:" in file.read_text(encoding="utf-8")
    notes = kept.home / "cache" / "imports" / "claude-code.json"
    assert SECRET not in notes.read_text(encoding="utf-8")


def test_what_was_forgotten_stays_so(kept: Kept, sessions: Path, tmp_path: Path) -> None:
    write(sessions / "one.jsonl", [*turn("one", 1, ""), *turn("one", 2, "")])
    bring_in(kept, sessions)
    gone = next(one for one in kept.exchanges() if one.user.startswith("Question 1"))
    kept.memory.forget([gone.id])
    (kept.home / "cache" / "imports" / "claude-code.json").unlink()

    assert counts(bring_in(kept, sessions)) == (0, 0, 2)
    assert [one.user for one in kept.exchanges()] == ["Question 2 of one?"]


def test_files_that_cannot_be_read_are_told_and_the_others_come_in(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    write(sessions / "binary.jsonl", [b"\x00\x01\x02" * 100])
    write(sessions / "empty.jsonl", [])
    (sessions / "folder.jsonl").mkdir()
    (sessions / "nothing.jsonl").symlink_to(sessions / "gone")
    write(sessions / "one.jsonl", turn("one", 1, tmp_path))

    came = bring_in(kept, sessions)

    assert counts(came) == (1, 1, 0)
    assert [str(one) for one in came.unread] == [
        f"{sessions / 'binary.jsonl'}:1: holds no session of claude-code"
    ]


def test_a_folder_that_is_not_there_is_an_error(kept: Kept, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere: there are no sessions .* Name the folder"):
        bring_in(kept, tmp_path / "nowhere")


def test_the_client_s_own_folder_is_looked_for_where_the_client_looks(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Path.home() / ".claude" / "projects" / "-a" / "one.jsonl", turn("one", 1, tmp_path))
    assert import_sessions("claude-code", kept.memory).exchanges == 1
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    write(tmp_path / "config" / "projects" / "two.jsonl", turn("two", 1, tmp_path))
    assert import_sessions("claude-code", kept.memory).exchanges == 1


def test_what_could_not_be_kept_is_not_noted_as_read(
    kept: Kept, sessions: Path, tmp_path: Path
) -> None:
    write(sessions / "one.jsonl", turn("one", 1, tmp_path))
    kept.home.mkdir()
    (kept.home / "journal").write_text("in the way", encoding="utf-8")
    with pytest.raises(JournalError, match="cannot read the journal"):
        bring_in(kept, sessions)
    (kept.home / "journal").unlink()
    assert counts(bring_in(kept, sessions)) == (1, 1, 0)


def test_two_imports_at_once_wait_for_each_other(
    home: Path, sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ralph import disk

    monkeypatch.setenv("RALPH_JOURNAL_LOCK_TIMEOUT_S", "0.01")
    kept = Kept(home)
    write(sessions / "one.jsonl", turn("one", 1, tmp_path))
    lock = home / "cache" / "imports" / "claude-code.lock"
    lock.parent.mkdir(parents=True)
    with (
        disk.lock(lock, timeout_s=1),
        pytest.raises(JournalBusy, match="another import of claude-code is under way"),
    ):
        bring_in(kept, sessions)
    assert counts(bring_in(kept, sessions)) == (1, 1, 0)


def test_a_session_of_many_batches_is_kept_piece_by_piece(
    kept: Kept, sessions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralph.memory.sessions._BATCH_BYTES", 1000)
    for name in ("one", "two"):
        lines = [line for number in range(20) for line in turn(name, number, tmp_path)]
        write(sessions / f"{name}.jsonl", lines)
    came = bring_in(kept, sessions)
    assert counts(came) == (2, 40, 0)
    assert len(set(kept.lines())) == len(kept.lines()) == 42
    assert counts(bring_in(kept, sessions)) == (0, 0, 0)
