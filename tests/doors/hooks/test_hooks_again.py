"""A session is read more than once: when it goes on, when a hook objects, when one was killed."""

from __future__ import annotations

from pathlib import Path

from hooking import Session, exchanges, iterations

from ralph.doors.hooks.session_end import TranscriptReader
from ralph.memory.project import Focus, Project, set_focus
from ralph.memory.ralph import open_ralph
from ralph.memory.sessions import SessionWork, keep_iteration

DONE = "The login form is there, with validation of empty passwords and its own tests."


def work(session: Session) -> None:
    """One exchange in which a file is made."""
    session.prompts("Add the login form")
    session.writes("src/login.py")
    session.says(DONE)


def test_a_session_that_goes_on_under_another_focus_takes_nothing_along(
    project: Path, tmp_path: Path
) -> None:
    set_focus(Project(project), Focus("login"))
    session = Session(project, tmp_path)
    work(session)
    session.hook("stop")
    session.hook("session-end")
    set_focus(Project(project), Focus("cart"))

    session.hook("session-start", source="resume")
    session.prompts("Thank you. What is it called?")
    session.says("It is called login.")
    session.hook("stop")

    assert len(exchanges(project)) == 2
    assert (len(iterations(project, "login")), iterations(project, "cart")) == (1, [])


def test_what_was_forgotten_does_not_come_back_when_the_session_goes_on(
    project: Path, tmp_path: Path
) -> None:
    set_focus(Project(project), Focus("login"))
    session = Session(project, tmp_path)
    for number in range(2):
        session.prompts(f"Add form {number}")
        session.writes(f"src/form{number}.py")
        session.says(DONE)
        session.hook("stop")
    with open_ralph(project) as ralph:
        talk, memory = ralph.conversations, ralph.feature("login")
        talk.forget([one.id for one in exchanges(project)])
        memory.forget([memory.records()[0].id])

    session.hook("session-end")  # from here on it is read from its beginning
    session.prompts("What now?")
    session.says("Nothing.")
    session.hook("stop")

    assert [one.task_title for one in iterations(project, "login")] == ["Add form 1"]
    # Its conversation was forgotten with them; what is said now is a conversation all the same.
    assert [one.user for one in exchanges(project)] == ["What now?"]
    with open_ralph(project) as ralph:
        [listed] = ralph.conversations.list()
    assert (listed.conversation.title, listed.exchanges) == ("What now?", 1)


def test_what_a_hook_made_the_assistant_do_after_its_answer_is_kept(
    project: Path, tmp_path: Path
) -> None:
    set_focus(Project(project), Focus("login"))
    session = Session(project, tmp_path)
    session.prompts("Add the login form")
    session.says("It is there.")
    session.hook("stop", last_assistant_message="It is there.")
    session.objects("Run the checks first.")
    session.runs("make check", "make: *** No rule to make target 'check'.  Stop.", failed=True)
    session.writes("Makefile")
    session.runs("make check", "ok")
    session.says("Now the checks pass.")
    for event in ("stop", "session-end", "stop"):
        session.hook(event, stop_hook_active=True)

    first, second = exchanges(project)
    assert (first.user, first.assistant) == ("Add the login form", "It is there.")
    assert (second.user, second.assistant) == ("", "Now the checks pass.")
    [one] = iterations(project, "login")
    assert (one.task_title, one.summary) == ("Now the checks pass", "Now the checks pass.")
    assert one.errors[0].resolution == "Edited Makefile; then `make check` passed."


def test_a_hook_that_is_killed_between_two_journals_loses_and_doubles_nothing(
    project: Path, tmp_path: Path
) -> None:
    set_focus(Project(project), Focus("login"))
    session = Session(project, tmp_path)
    work(session)
    with open_ralph(project) as ralph:
        reading = TranscriptReader(session.transcript, root=str(project), offset=0)
        assert reading.read_finished(lambda: True) == []
        rest = reading.open_exchange()
        assert rest is not None
        assert keep_iteration(ralph, rest, SessionWork("login"), session=session.name) is not None
    assert exchanges(project) == []

    session.hook("stop")

    assert (len(exchanges(project)), len(iterations(project, "login"))) == (1, 1)


def test_what_nobody_asked_is_told_as_said(project: Path, tmp_path: Path) -> None:
    earlier = Session(project, tmp_path)
    earlier.prompts("Make coffee")
    earlier.says("Made.")
    earlier.hook("stop")
    earlier.objects("Look at the beans.")
    earlier.says("The beans of the coffee were from Kenya.")
    earlier.hook("stop")

    asked = Session(project, tmp_path).hook("user-prompt-submit", prompt="beans from Kenya")

    assert "- Said on 2026-11-02 [" in asked.context
    assert ": The beans of the coffee were from Kenya.\n" in asked.context
    assert "Asked on" not in asked.context
