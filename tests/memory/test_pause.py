"""Pauses: what is said while one holds is not kept, not told, and never comes in later."""

from __future__ import annotations

import json
import os
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commanding import Line
from hooking import Session, exchanges, iterations, log
from importing import import_sessions

from ralph.errors import BadInput
from ralph.memory.conversation_stream import ConversationContent
from ralph.memory.conversations import Conversations
from ralph.memory.pausing import (
    NAME,
    Pause,
    covers,
    in_force,
    pause,
    read_pauses,
    resume,
    unpaused_talks,
)
from ralph.memory.project import Focus, Project, set_focus
from ralph.memory.ralph import open_ralph
from ralph.records.conversation import Conversation, Exchange, conversation_id, exchange_id

SECRET = "The takeover of Acme is planned for spring"
EARLIER = "Add the login form to the start page"
LATER = "Write the migration of the orders table"


@pytest.fixture
def session(project: Path, tmp_path: Path) -> Session:
    """A session that is held now, as its transcript's times say."""
    begun = datetime.now(UTC) - timedelta(minutes=5)
    return Session(project, tmp_path, began=begun.isoformat())


def held(session: Session, text: str) -> None:
    """One exchange with all the hooks that the client calls; it is over before the next begins."""
    session._clock = datetime.now(UTC)
    session.hook("user-prompt-submit", prompt=text)
    session.prompts(text)
    session.writes(f"src/{text.split()[1].lower()}.py")
    session.says(f"Done: {text}.")
    session.hook("stop")


def paused(home: Path, one: Pause) -> None:
    """A pause that was, as it stands on disk."""
    home.mkdir(parents=True, exist_ok=True)
    (home / NAME).write_text(json.dumps({"pauses": [one._asdict()]}), encoding="utf-8")


def everything_below(folder: Path) -> str:
    files = (file for file in folder.rglob("*") if file.is_file())
    return "\n".join(file.read_bytes().decode("utf-8", "replace") for file in files)


# -- hooks


def test_what_is_said_in_a_pause_is_not_kept_and_the_rest_of_the_session_is(
    session: Session, project: Path, home: Path
) -> None:
    set_focus(Project(project), Focus("login"))
    held(session, EARLIER)
    begun = pause(home, project=Project(project))
    held(session, SECRET)
    resume(home, project=Project(project))
    # The next prompt comes after the pause, as a person's does.
    session._clock = datetime.fromisoformat(begun.since) + timedelta(minutes=10)
    session.prompts(LATER)
    session.says("It is written.")
    session.hook("stop")

    assert [one.user for one in exchanges(project)] == [EARLIER, LATER]
    assert [one.task_title for one in iterations(project, "login")] == [EARLIER]
    assert "Acme" not in everything_below(home)
    assert log(project) == []


def test_what_was_held_in_a_pause_can_never_be_kept(
    session: Session, project: Path, home: Path
) -> None:
    pause(home, project=Project(project))
    held(session, SECRET)
    resume(home, project=Project(project))
    (home / NAME).unlink()  # the tombstones know it, too

    session.hook("session-end")
    session.hook("session-start", source="resume")
    session.hook("stop")

    assert exchanges(project) == []


def test_a_session_that_began_in_a_pause_is_not_titled_by_it(
    session: Session, project: Path, home: Path
) -> None:
    pause(home, project=Project(project))
    title = {"type": "custom-title", "customTitle": SECRET, "sessionId": session.name}
    session.transcript.write_text(json.dumps(title) + "\n", encoding="utf-8")
    held(session, SECRET)
    resume(home, project=Project(project))
    session._clock = datetime.now(UTC) + timedelta(minutes=1)
    session.prompts(LATER)
    session.says("It is written.")
    session.hook("stop")

    with open_ralph(project) as ralph:
        [listed] = ralph.conversations.list()

    assert listed.conversation.title == LATER


def test_nothing_is_told_in_a_pause(session: Session, project: Path, home: Path) -> None:
    held(session, EARLIER)
    asked = "How was the login form added?"
    other = Session(project, session.folder)
    assert EARLIER in other.hook("user-prompt-submit", prompt=asked).context

    pause(home, project=Project(project))

    assert Session(project, session.folder).hook("user-prompt-submit", prompt=asked).out == ""
    assert Session(project, session.folder).hook("session-start", source="startup").out == ""


def test_an_error_met_in_a_pause_is_noted_nowhere(
    session: Session, project: Path, home: Path
) -> None:
    pause(home, project=Project(project))

    answer = session.hook(
        "post-tool-use-failure",
        tool_name="Bash",
        tool_input={"command": "make acme"},
        error="Error: Acme is not a target",
    )

    assert answer.out == ""
    assert "Acme" not in everything_below(home)


def test_one_conversation_is_paused_and_the_others_go_on(
    session: Session, project: Path, home: Path
) -> None:
    pause(home, conversation=conversation_id("claude-code", session.name))
    other = Session(project, session.folder)

    held(session, SECRET)
    held(other, EARLIER)

    assert [one.user for one in exchanges(project)] == [EARLIER]


def test_a_pause_of_another_project_is_none_here(
    session: Session, project: Path, home: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    Project(elsewhere).init()
    pause(home, project=Project(elsewhere))

    held(session, EARLIER)

    assert [one.user for one in exchanges(project)] == [EARLIER]


def test_a_damaged_file_keeps_everything_out(session: Session, project: Path, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / NAME).write_text('{"pauses": [{"since": 7}]}', encoding="utf-8")

    held(session, SECRET)

    assert exchanges(project) == []
    assert any(NAME in line for line in log(project))


# -- imports


def test_an_import_does_not_bring_in_what_was_said_in_a_pause(
    session: Session, project: Path, home: Path
) -> None:
    """No hook ever ran: only the times in the transcript tell."""
    begun = session._clock
    session.prompts(EARLIER)
    session.says("It is there.")
    since, until = (begun + timedelta(minutes=n) for n in (1, 2))
    paused(home, Pause(since.isoformat(), until.isoformat(), project=Project(project).id))
    session._clock = since
    session.prompts(SECRET)
    session.says("Understood.")
    session._clock = until
    session.prompts(LATER)
    session.says("It is written.")
    folder = session.folder / "clients"
    (folder / "work").mkdir(parents=True)
    moved = folder / "work" / session.transcript.name
    session.transcript.rename(moved)
    long_ago = datetime.now(UTC).timestamp() - 3600
    os.utime(moved, (long_ago, long_ago))

    with open_ralph(project) as ralph:
        import_sessions("claude-code", ralph.conversations, folder=folder)

    assert [one.user for one in exchanges(project)] == [EARLIER, LATER]


def test_a_conversation_of_which_something_is_left_out_is_titled_by_the_rest(home: Path) -> None:
    def said(user: str, at: str) -> Exchange:
        name = exchange_id("c", user)
        return Exchange(id=name, conversation="c", user=user, completed=f"2026-11-02T{at}:00Z")

    paused(home, Pause("2026-11-02T10:00:00Z", "2026-11-02T11:00:00Z", project="here"))
    talk = ConversationContent(
        Conversation(id="c", title=SECRET), [said(SECRET, "10:30"), said(LATER, "11:30")]
    )

    [kept] = unpaused_talks(home, ["here"], [talk])

    assert [one.user for one in kept.exchanges] == [LATER]
    assert kept.conversation.title == LATER
    assert unpaused_talks(home, ["elsewhere"], [talk]) == [talk]


@pytest.mark.parametrize(
    ("started", "ended", "is_held"),
    [
        ("09:00", "09:59", False),
        ("09:59", "10:01", True),
        ("10:10", "10:20", True),
        ("10:59", "11:01", True),
        ("11:00", "11:01", False),
        (None, "10:30", True),
        ("10:30", None, True),
        (None, None, False),
    ],
)
def test_what_touches_a_pause_is_held_in_it(
    started: str | None, ended: str | None, is_held: bool
) -> None:
    pauses = [Pause("2026-11-02T10:00:00Z", "2026-11-02T11:00:00Z")]

    def at(hour: str | None) -> str | None:
        return f"2026-11-02T{hour}:00Z" if hour else None

    assert covers(pauses, (["any"], "c"), at(started), at(ended)) is is_held


def test_of_unknown_time_nothing_is_kept_while_a_pause_holds() -> None:
    assert covers([Pause("2026-11-02T10:00:00Z")], (["any"], "c"), None, "no time")


# -- the state itself


def test_a_pause_begins_once_and_ends_once(project: Path, home: Path) -> None:
    here = Project(project)
    first = pause(home, project=here)

    assert pause(home, project=here) == first
    assert in_force(home, here.id)
    assert in_force(home) is None
    assert resume(home, project=here) == first
    assert resume(home, project=here) is None
    assert in_force(home, here.id) is None
    [over] = read_pauses(home)
    assert over.until


def test_paused_everywhere_is_paused_in_each_project(project: Path, home: Path) -> None:
    pause(home)

    assert in_force(home, Project(project).id)
    assert in_force(home, conversation="0123456789abcdef")
    assert resume(home, project=Project(project)) is None
    assert in_force(home, Project(project).id)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_what_is_paused_is_its_owners_alone(project: Path, home: Path) -> None:
    pause(home, project=Project(project))
    resume(home, project=Project(project))

    assert stat.S_IMODE((home / NAME).stat().st_mode) == 0o600


def test_what_cannot_be_read_is_an_error_that_says_what_to_do(home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / NAME).write_text("[", encoding="utf-8")

    with pytest.raises(BadInput, match="nothing is kept") as error:
        in_force(home)

    assert error.value.todo == "Fix or delete it."


# -- the command line


def test_a_project_is_paused_and_goes_on(ralph: Line, project: Path, home: Path) -> None:
    assert "To resume: ralph resume" in ralph.well("pause").out
    assert in_force(home, Project(project).id)
    assert ralph.well("status", "--json").json["paused"]
    assert "memory is paused in this project" in ralph.well("status").out
    checks = {one["name"]: one for one in ralph.well("doctor", "--json").json["checks"]}
    assert (checks["pause"]["state"], checks["pause"]["todo"]) == ("warning", "Run: ralph resume")

    assert ralph.well("resume").out == "Recording again.\n"
    assert ralph.well("status", "--json").json["paused"] is None
    assert "no such pause" in ralph.well("resume").out


def test_resuming_a_project_tells_of_a_pause_everywhere(ralph: Line) -> None:
    ralph.well("pause", "--everywhere")

    assert "`ralph resume --everywhere` ends that" in ralph.well("resume").out
    assert ralph.well("resume", "--everywhere", "--json").json == {"resumed": True, "paused": None}


def test_a_conversation_is_named_by_its_id_or_its_session(
    ralph: Line, project: Path, home: Path
) -> None:
    with open_ralph(project) as opened:
        known = opened.conversations.start("Timeouts")
    session = "7d1c2f0e-9a55-4b8e-8f0c-0a4d8f4f1a11"

    assert ralph.well("pause", "--conversation", known[:6], "--json").json["conversation"] == known
    told = ralph.well("pause", "--conversation", session, "--json").json
    assert told["conversation"] == conversation_id("claude-code", session)
    assert in_force(home, conversation=known)
    # Nothing of it is kept, but it is paused, and that is enough to name it by.
    again = told["conversation"][:8]
    assert ralph.well("resume", "--conversation", again, "--json").json["resumed"] is True
    assert ralph.well("resume", "--conversation", known, "--json").json["resumed"] is True
    assert not in_force(home, conversation=known)


def test_a_conversation_nobody_knows_is_refused(ralph: Line, home: Path) -> None:
    assert "no conversation 'ffff'" in ralph("pause", "--conversation", "ffff").complaint
    assert ralph("pause", "--conversation", "ffff", "--everywhere").code == 2
    assert read_pauses(home) == []


def test_outside_a_project_everything_can_be_paused(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert ralph("pause").code == 1
    assert "everywhere" in ralph.well("pause", "--everywhere").out


def test_what_is_buried_is_gone_and_stays_out(project: Path, home: Path) -> None:
    with open_ralph(project) as ralph:
        memory: Conversations = ralph.conversations
        talk = memory.start("Timeouts")
        kept = memory.exchange(talk, user=SECRET, assistant="Understood.", key="one")
        assert memory.search("takeover of Acme")

        memory.bury([kept.id, exchange_id(talk, "two")], reason="test")

        assert memory.search("takeover of Acme") == []
        for key in ("one", "two"):
            assert not memory.exchange(talk, user=SECRET, assistant="Again.", key=key).fresh
        assert memory.exchanges(talk) == []
    assert "Acme" not in everything_below(home)
