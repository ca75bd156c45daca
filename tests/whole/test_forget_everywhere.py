"""A word that came in through every door is forgotten: no file of Ralph's holds it any more."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from commanding import Line
from hooking import Session, exchanges, hook, iterations
from remembering import files_holding, open_toy

from ralph.config import home_folder
from ralph.loop.run import Orchestrator
from ralph.memory.project import Focus, Project, project_or_folder, set_focus
from ralph.memory.ralph import open_ralph
from ralph.plan.edit import create_feature
from ralph.plan.store import Plan
from ralph.records.conversation import Summary, summary_id
from ralph.records.iteration import ErrorSeen, Iteration
from ralph.text.tokens import tokens

# Found nowhere else, and with stems of its own.
WORD = "zyxvoqueing"
SECOND = "And now the tests"
DONE = "The login form is there, with validation of empty passwords and its own tests."
BROKEN = f"TypeError: {WORD} is not callable in the login form"
FIXED = (
    'Edited pyproject.toml: +`form = "factory"`; then `make login` passed.'
    ' Why: "The form is a factory, which has to be called first."'
)


@pytest.fixture
def ralph(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Line:
    monkeypatch.chdir(project)
    create_feature(Plan(project), "login", {"description": "Signing in."})
    set_focus(Project(project), Focus("login"))
    return Line(capsys, monkeypatch)


def traces(project: Path, home: Path, word: str = WORD) -> list[str]:
    """Files of the project and of the home that hold the word or its stem."""
    wanted = [one.encode() for one in (word, *tokens(word))]
    return [
        file.as_posix()
        for folder in (project / ".ralph", home)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and any(one in file.read_bytes().lower() for one in wanted)
    ]


def held(
    project: Path, tmp_path: Path, *, first: str, second: str = "And now the tests"
) -> Session:
    """A session of two exchanges, kept by the hooks as a client calls them."""
    session = Session(project, tmp_path)
    session.hook("session-start")
    for question in (first, second):
        session.hook("user-prompt-submit", prompt=question)
        session.prompts(question)
        if question == first:
            session.runs("make login", BROKEN.replace(WORD, word_of(first)), failed=True)
            session.hook(
                "post-tool-use-failure",
                tool_name="Bash",
                tool_input={"command": "make login"},
                error=BROKEN.replace(WORD, word_of(first)),
            )
        session.writes("src/login.py")
        session.says(DONE if question == second else f"{DONE} It is called {word_of(first)}.")
        session.hook("stop")
    return session


def word_of(question: str) -> str:
    return next((word for word in question.split() if word.startswith("zyx")), "login")


def plant_everywhere(ralph: Line, project: Path, tmp_path: Path) -> None:
    """The word through every door that writes anything."""
    held(project, tmp_path, first=f"Remember {WORD} of the login form")
    Session(project, tmp_path).hook("session-start")
    # A session under way: an error is noted, and the transcript has a title.
    under_way = Session(project, tmp_path)
    under_way.hook("session-start")
    under_way.hook(
        "post-tool-use-failure",
        tool_name="Bash",
        tool_input={"command": "make login"},
        error=BROKEN,
    )
    hook(f"no-{WORD}", Session(project, tmp_path).given(), cwd=tmp_path)
    folder = tmp_path / "imported"
    folder.mkdir()
    imported = Session(project, folder)
    imported.prompts("What is it called?")
    imported.says("It has a name, and that name is in the title of this session.")
    with imported.transcript.open("a", encoding="utf-8") as file:
        title = {"type": "ai-title", "aiTitle": f"Naming {WORD}", "sessionId": imported.name}
        file.write(json.dumps(title) + "\n")
    os.utime(imported.transcript, (1, 1))
    ralph.well("conversations", "import", "claude-code", folder)
    talk = [{"role": "user", "content": f"Say {WORD}"}, {"role": "assistant", "content": "Said."}]
    ralph.well("conversations", "import", "-", stdin=json.dumps({"messages": talk}))
    # What is said of conversations later.
    with open_ralph(project) as opened:
        first = opened.conversations.list()[0].conversation.id
        one = Summary(of="conversation", target=first, text=f"It was about {WORD}.", covers=1)
        opened.conversations.say(one, id=summary_id(first, 1))
        opened.remember(f"The {WORD} is a cookie.")
        opened.remember(f"The {WORD} is a session.", feature="login")
        opened.remember(f"The {WORD} is a secret.", private=True)
    ralph.well("conversations", "tag", first, WORD)
    ralph.well("conversations", "rename", first, f"The {WORD} talk")
    notes = tmp_path / "notes.md"
    notes.write_text(f"# Names\n\nIt is {WORD}.\n", encoding="utf-8")
    ralph.well("conversations", "add-document", notes)
    # Iterations, knowledge, and copies of a plan that no longer has it.
    ralph.record("login", {"summary": f"Built {WORD}.", "errors": [{"message": BROKEN}]})
    entry = {"entry_type": "failure_solution", "failure_description": WORD, "solution_steps": "x"}
    ralph.well("knowledge", "capture", "-", stdin=json.dumps(entry))
    ralph.well("learning", "add", f"Call it {WORD}.", "--feature", "login")
    ralph.well("learning", "remove", "1", "--feature", "login")
    ralph.well("learning", "add", f"It's {WORD},\nnot login.", "--feature", "login")
    # The plan's own texts, and what a killed run left.
    ralph.well("feature", "update", "login", "--description", f"Signing in with {WORD.upper()}.")
    ralph.well("task", "add", f"Rename {WORD} everywhere", "--feature", "login")
    ralph.well("task", "update", "1", "--comment", f"The {WORD} is in the form.")
    run = Project(project).cache / "runs" / "run-1"
    run.mkdir(parents=True)
    (run / "prompt.md").write_text(f"# Task\n\nRename {WORD} everywhere", encoding="utf-8")
    with open_ralph(project) as opened:
        kinds = {hit.kind for hit in opened.search(WORD, limit=20, min_score=0)}
        assert {"note", "learning", "exchange", "iteration"} <= kinds


def test_forgetting_by_text_leaves_it_in_no_file(
    ralph: Line, project: Path, tmp_path: Path, home: Path
) -> None:
    plant_everywhere(ralph, project, tmp_path)
    planted = " ".join(traces(project, home))
    for part in ("memory/login.jsonl", "memory/~notes", "journal/conversations",
                 "journal/knowledge", "sqlite3",
                 "sessions", "brief.json", "hooks.log", "imports", "versions", "features.yaml",
                 "tasks.yaml", "runs"):  # fmt: skip
        assert part in planted

    ran = ralph.well("forget", "--match", WORD, "--yes")

    assert traces(project, home) == []
    assert "Also removed: " in ran.out
    assert "Still there" not in ran.out.replace("Still there: the session's own file", "")
    assert "The words also go from .ralph/db/features.yaml:" in ran.out
    plan = Plan(project).load()
    assert plan.features[0].description == "Signing in with [forgotten]."
    assert plan.tasks[0].title == "Rename [forgotten] everywhere"
    # What had nothing to do with it is still there.
    assert SECOND in [one.user for one in exchanges(project)]


@pytest.mark.parametrize("named", ["exchange", "iteration"])
def test_forgetting_one_of_two_tellings_forgets_both_with_the_title(
    ralph: Line, project: Path, tmp_path: Path, home: Path, named: str
) -> None:
    held(project, tmp_path, first=f"Remember {WORD} of the login form")
    Session(project, tmp_path).hook("session-start")
    with open_ralph(project) as opened:
        [listed] = opened.conversations.list()
        talk = opened.conversations.exchanges(listed.conversation.id)
        exchange = next(one.id for one in talk if WORD in one.user)
        iteration = opened.feature("login").iterations()[0][0].record.id
    assert traces(project, home)

    ralph.well("forget", exchange if named == "exchange" else iteration)

    assert traces(project, home) == []
    assert [one.user for one in exchanges(project)] == [SECOND]
    assert len(iterations(project, "login")) == 1
    with open_ralph(project) as opened:
        [now] = opened.conversations.list()
    assert now.conversation.title == SECOND
    assert (now.conversation.source, now.conversation.id) == ("claude-code", listed.conversation.id)


def test_reading_the_session_again_does_not_bring_the_title_back(
    ralph: Line, project: Path, tmp_path: Path, home: Path
) -> None:
    session = held(project, tmp_path, first=f"Remember {WORD} of the login form")
    [gone] = [one.id for one in exchanges(project) if WORD in one.user]
    ralph.well("forget", gone)

    for file in home.glob("cache/hooks/*/sessions/*.jsonl"):
        file.unlink()
    session.prompts("What is it called?")
    session.says("It is called login.")
    session.hook("stop")
    os.utime(session.transcript, (1, 1))
    ralph.well("conversations", "import", "claude-code", tmp_path)

    assert traces(project, home) == []
    assert len(exchanges(project)) == 2


def test_tags_and_a_title_of_the_persons_own_stay_with_what_goes_on(
    ralph: Line, project: Path, tmp_path: Path
) -> None:
    held(project, tmp_path, first=f"Remember {WORD} of the login form")
    with open_ralph(project) as opened:
        name = opened.conversations.list()[0].conversation.id
    ralph.well("conversations", "tag", name, "signing-in")
    ralph.well("conversations", "rename", name, "My talk")
    [gone] = [one.id for one in exchanges(project) if WORD in one.user]

    ralph.well("forget", gone)

    with open_ralph(project) as opened:
        [listed] = opened.conversations.list()
    assert (listed.conversation.title, listed.tags) == ("My talk", ("signing-in",))


def test_a_title_that_tells_nothing_of_what_goes_stays(
    ralph: Line, project: Path, tmp_path: Path
) -> None:
    held(project, tmp_path, first="Add the login form", second=f"Remember {WORD}")
    [gone] = [one.id for one in exchanges(project) if WORD in one.user]

    ralph.well("forget", gone)

    with open_ralph(project) as opened:
        [listed] = opened.conversations.list()
    assert listed.conversation.title == "Add the login form"


def test_a_conversation_is_forgotten_with_its_iterations(
    ralph: Line, project: Path, tmp_path: Path, home: Path
) -> None:
    held(project, tmp_path, first=f"Remember {WORD} of the login form")
    with open_ralph(project) as opened:
        name = opened.conversations.list()[0].conversation.id

    ran = ralph.well("forget", name)

    assert traces(project, home) == []
    assert (exchanges(project), iterations(project, "login")) == ([], [])
    assert "Still there: the session's own file, as Claude Code keeps it" in ran.out


def test_a_title_that_matches_is_no_reason_to_forget_the_conversation(
    ralph: Line, project: Path, tmp_path: Path, home: Path
) -> None:
    held(project, tmp_path, first=f"Remember {WORD} of the login form")

    ralph.well("forget", "--match", WORD, "--conversations", "--yes")

    assert [one.user for one in exchanges(project)] == [SECOND]
    assert files_holding(home / "journal", WORD) == []


def test_what_is_older_takes_nothing_newer_along(
    ralph: Line, project: Path, tmp_path: Path
) -> None:
    session = Session(project, tmp_path, began="2026-11-02T10:00:00Z")
    session.prompts("What is a cookie?")
    session.says("A small text that a browser keeps for a site.")
    session.now(later_s=10 * 24 * 3600)
    session.prompts("What is a session?")
    session.says("What a server remembers of a visitor.")
    session.hook("session-end")

    ralph.well("forget", "--before", "2026-11-05", "--conversations", "--yes")

    assert [one.user for one in exchanges(project)] == ["What is a session?"]


# What was learned from it


def attempts(project: Path, *, publish: bool) -> list[str]:
    """Two iterations of a task, and the lesson that the loop took from them; gives their ids."""
    failed = Iteration(feature="login", task_id=1, task_title="Add the form", outcome="failure",
                       summary="The build stopped.",
                       errors=(ErrorSeen(BROKEN, "runtime", resolution=FIXED),),
                       session_id="run-1")  # fmt: skip
    done = Iteration(feature="login", task_id=1, task_title="Add the form", outcome="success",
                     summary="The factory is called in the constructor now.",
                     session_id="run-2")  # fmt: skip
    with open_toy(project) as opened:
        kept = opened.feature("login").remember_all([failed, done])
        told = [one for _, one in opened.feature("login").iterations()]
        orchestrator = Orchestrator(opened, Plan(project), lambda event: None)
        orchestrator.give(kept[1].record, told)
        assert len(opened.knowledge.staged()) == 1
        if publish:
            opened.knowledge.checkpoint()
    return [one.id for one in kept]


def test_a_lesson_that_is_only_staged_goes_with_its_iteration(
    ralph: Line, project: Path, home: Path
) -> None:
    failed, _ = attempts(project, publish=False)

    ralph.well("forget", failed)

    assert traces(project, home) == []
    with open_toy(project) as opened:
        assert opened.knowledge.staged() == []
        assert len(opened.feature("login").records()) == 1


def test_what_was_learned_from_an_iteration_is_shown_and_goes_with_it(
    ralph: Line, project: Path, home: Path
) -> None:
    failed, _ = attempts(project, publish=True)
    learned_from(project, failed)

    asked = ralph("forget", failed)

    assert asked.code == 1
    assert "3 records of login, knowledge, the plan" in asked.out
    assert "  learning of login  Never call" in asked.out
    assert "deleted for all other projects, too" in asked.err
    assert traces(project, home)

    done = ralph.well("forget", failed, "--yes", "--json").json

    assert done["forgotten"] == 3
    assert done["remains"] == []
    assert Plan(project).feature("login").learnings == ()
    assert traces(project, home) == []


@pytest.mark.parametrize("words", [("--before", "2100-01-01"), ("--feature", "login")])
def test_what_was_learned_stays_where_old_records_are_cleared_away(
    ralph: Line, project: Path, home: Path, words: tuple[str, str]
) -> None:
    failed, _ = attempts(project, publish=True)
    learned_from(project, failed)

    left = ralph.well("forget", *words, "--yes", "--json").json["remains"]

    [learning] = Plan(project).feature("login").learnings
    [command] = [one for one in left if one.startswith("learned from these records: ")]
    assert learning.id in command
    ralph.well(*command.partition(": ralph ")[2].split())
    assert traces(project, home) == []


def learned_from(project: Path, record: str) -> None:
    """A learning that the loop took from this iteration, and one of a person."""
    from ralph.plan.learnings import learn
    from ralph.records.learning import Learning

    with open_toy(project) as opened:
        number = opened.feature("login").get(record).record.iteration_number
    assert number is not None
    learning = Learning(source="auto", text=f"Never call {WORD} before login.", iteration=number)
    learn(Plan(project), "login", [learning], current_iteration=number)


def test_a_persons_own_learning_stays_unless_it_holds_the_text(ralph: Line, project: Path) -> None:
    [one] = ralph.record("login", {"summary": "Built the form."})
    ralph.well("learning", "add", "Call the form login.", "--feature", "login")

    ralph.well("forget", one)
    assert len(Plan(project).feature("login").learnings) == 1

    ralph.well("forget", "--match", "call the FORM", "--yes")
    assert Plan(project).feature("login").learnings == ()


def test_notes_are_forgotten_by_id_and_with_their_feature(
    ralph: Line, project: Path, home: Path
) -> None:
    with open_ralph(project) as opened:
        notes = [
            opened.remember(f"The {WORD} is a cookie.")[0],
            opened.remember(f"The {WORD} is a session.", feature="login")[0],
            opened.remember(f"The {WORD} is a secret.", private=True)[0],
        ]
        assert opened.search(f"the {WORD}")

    shown = ralph.well("forget", "--feature", "login", "--yes").out
    assert f"{notes[1].id[:8]}  note of login  The {WORD} is a session." in shown
    done = ralph.well("forget", notes[0].id, notes[2].id, "--json").json
    assert [one["feature"] for one in done["records"]] == [None, None]

    assert traces(project, home) == []


@pytest.mark.parametrize("by", ["id", "text"])
def test_what_was_said_before_init_is_forgotten_in_its_project(
    ralph: Line, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    folder = tmp_path / "early"
    folder.mkdir()
    with open_ralph(project=project_or_folder(folder, home=home_folder())) as opened:
        memory = opened.conversations
        said = memory.exchange(memory.start(), user=f"What is {WORD}?", assistant="A word.")
    Project(folder).init()
    monkeypatch.chdir(folder)
    with open_ralph(folder) as opened:
        assert opened.search(f"what is {WORD}")

    ralph.well("forget", *([said.id] if by == "id" else ["--match", WORD, "--yes"]))

    assert traces(folder, home) == []


def test_the_text_may_have_quotes_and_line_breaks(ralph: Line, project: Path, home: Path) -> None:
    ralph.record("login", {"summary": f'He said "{WORD},\nif you please" and left.'})

    ralph.well("forget", "--match", f'"{WORD.upper()}, if you please"', "--yes")

    assert traces(project, home) == []


def test_blanks_around_the_text_keep_longer_words_out(ralph: Line, project: Path) -> None:
    ralph.well("learning", "add", "Item 70 is blue.", "--feature", "login")
    [_, other] = ralph.record("login", {"summary": "Item 7 is red."}, {"summary": "Item 70 too."})

    ralph.well("forget", "--match", "item 7 ", "--yes")

    assert [one.record.id for one, _ in iterations_of(project)] == [other]
    assert len(Plan(project).feature("login").learnings) == 1


def iterations_of(project: Path) -> list[Any]:
    with open_ralph(project) as opened:
        return list(opened.feature("login").iterations())


def test_a_learning_is_forgotten_by_its_id(ralph: Line, project: Path, home: Path) -> None:
    ralph.well("learning", "add", f"Call it {WORD}.", "--feature", "login")
    [learning] = Plan(project).feature("login").learnings

    ran = ralph.well("forget", learning.id, "--json")

    assert ran.json["records"] == [{"id": learning.id, "feature": "login"}]
    assert traces(project, home) == []


def test_the_stems_of_a_removed_learning_go_as_well(ralph: Line, project: Path, home: Path) -> None:
    ralph.well("learning", "add", f"Call it {WORD}.", "--feature", "login")
    ralph.well("learning", "remove", "1", "--feature", "login")
    ralph.record("login", {"summary": f"Built {WORD}."})
    assert "features.yaml" in " ".join(traces(project, home))

    ralph.well("forget", "--match", WORD, "--yes")

    assert traces(project, home) == []


def test_names_in_the_plan_stay_and_are_told_with_their_place(ralph: Line, project: Path) -> None:
    create_feature(Plan(project), WORD, {"description": f"All about {WORD}."})

    asked = ralph("forget", "--match", WORD)
    assert "0 records and the words on 2 lines of the plan would be forgotten" in asked.complaint
    left: list[str] = ralph.well("forget", "--match", WORD, "--yes", "--json").json["remains"]

    [told] = [one for one in left if "features.yaml" in one]
    line = int(told.partition("features.yaml:")[2].partition(" ")[0])
    plan: Any = (project / ".ralph/db/features.yaml").read_text(encoding="utf-8").splitlines()
    assert plan[line - 1] == f"  - name: {WORD}"
    assert Plan(project).feature(WORD).description == "All about [forgotten]."


def test_a_run_under_way_stays_and_is_told(ralph: Line, project: Path) -> None:
    from ralph import disk

    run = Project(project).cache / "runs" / "run-1"
    run.mkdir(parents=True)
    (run / "prompt.md").write_text(f"Rename {WORD}", encoding="utf-8")

    with disk.lock(run / "lock", timeout_s=1.0):
        left = ralph.well("forget", "--match", WORD, "--yes", "--json").json["remains"]

    assert ["is used by an active run" in one for one in left] == [True]
    ralph.well("forget", "--match", WORD, "--yes")
    assert not run.exists()


@pytest.mark.parametrize("option", ["--conversations", "--knowledge"])
def test_the_plan_is_left_alone_where_only_other_things_are_to_go(
    ralph: Line, project: Path, option: str
) -> None:
    ralph.well("learning", "add", f"Call it {WORD}.", "--feature", "login")

    left = ralph.well("forget", "--match", WORD, option, "--yes", "--json").json["remains"]

    assert len(Plan(project).feature("login").learnings) == 1
    assert any("is in your plan: edit it there" in one for one in left)


def test_an_exchange_that_is_private_takes_its_iteration_along(
    ralph: Line, project: Path, tmp_path: Path, home: Path
) -> None:
    held(project, tmp_path, first=f"Remember {WORD} of the login form")
    [gone] = [one.id for one in exchanges(project) if WORD in one.user]

    ralph.well("conversations", "private", gone)

    assert traces(project, home) == []
