"""The page: every view shows what memory and plan have, and its actions do what commands do."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from browsing import Browser, served_page

from ralph import disk
from ralph.clients.drift import save_counts
from ralph.config import home_folder, store
from ralph.memory import gates
from ralph.memory.activity import note_activity
from ralph.memory.project import Project
from ralph.memory.ralph import open_ralph
from ralph.plan import learnings
from ralph.plan.importing import import_plan
from ralph.plan.store import Plan
from ralph.recall import run_name
from ralph.records import now
from ralph.records.knowledge import GateApproval, GateRejection
from ralph.state_folders import hooks_folder

SHOWN = "What the model was shown from memory"


def plan_of(browser: Browser) -> Plan:
    project = browser.site.project
    return Plan(project.root, state=project.cache)


def record_ids(text: str) -> list[str]:
    return re.findall(r'href="/record/([^"]+)"', text)


# -- what clients write that Ralph does not know


@pytest.mark.parametrize("path", ["/", "/conversations"])
def test_the_page_says_when_a_client_writes_much_that_ralph_does_not_know(
    browser: Browser, path: str
) -> None:
    assert "unknown to this version" not in browser.get(path)
    met = {"user_message": 62, "tool_<b>batch": 9, "tool_batch": 38}
    save_counts(home_folder(), "codex", "0.150.1", met)
    text = browser.get(path)
    assert "Codex 0.150: 38 % of events unknown to this version of Ralph (tool batch)" in text
    assert "Update Ralph: it may keep less of these sessions." in text


# -- badge and frame


def test_the_badge_is_green_and_has_the_details(browser: Browser) -> None:
    text = browser.get("/badge")

    assert 'class="badge on"' in text
    assert "RAG active" in text
    assert "SQLite ok" in text
    assert "static 256d" in text
    assert "2 saved" in text
    assert 'aria-describedby="badge-details"' in text


def test_the_badge_is_gray_when_memory_is_off_and_says_what_to_do(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser.get("/")
    from ralph.memory import status

    off = status.Health(False, "the index is damaged", "Run: ralph index rebuild")
    monkeypatch.setattr(status, "_index", lambda ralph: (off, []))
    browser.site.worker.submit(browser.site.reopen).result()
    text = browser.get("/badge")

    assert 'class="badge off"' in text
    assert "RAG off" in text
    assert "Run: ralph index rebuild" in text


def test_the_navigation_names_the_view_that_is_open(browser: Browser) -> None:
    text = browser.get("/features/auth")
    links = re.findall(r'<a href="(/\w*)"( aria-current="page")?>(\w+)</a>', text)

    places = [title for _, _, title in links[:5]]
    assert places == ["Today", "Timeline", "Search", "Plan", "Settings"]
    current = [(path, title) for path, is_current, title in links if is_current]
    assert current == [("/plan", "Plan"), ("/plan", "Features")]


def test_the_old_address_of_the_features_leads_to_the_plan(browser: Browser) -> None:
    answer = browser.client.get("/features")
    assert answer.status_code == 303
    assert answer.headers["location"] == f"{browser.site.base}/plan"


def test_a_page_that_is_not_there_says_so(browser: Browser) -> None:
    assert "There is no such page" in browser.get("/nothing", code=404)
    assert "no record" in browser.get("/record/ffffffff", code=404)


def test_what_was_not_foreseen_is_an_error_page(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("ralph.doors.web.views_today.overviews", break_down)
    said = browser.get("/", code=500)
    assert "Internal error (ZeroDivisionError: by nothing)" in said
    assert "Traceback" not in said


# -- home


def test_home_shows_what_happened_what_is_open_and_what_it_cost(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        ralph.feature("search").remember(
            {"task_title": "Rank", "outcome": "success", "cost_usd": 1.25, "tokens_used": 4200}
        )
        gates.reject(ralph, 1, "design", "No tokens in URLs")
    text = browser.text("/")

    assert "Today" in text
    assert "Rank" in text
    assert "The staging database resets every night." in text
    assert "Debug timeouts" in text
    assert "The pool is too small." in text
    assert "Task 1 was rejected at the design gate" in text
    assert "Cost: $1.25 in total" in text
    assert "Tokens: 4.2k in total" in text
    assert "No error came back recently." in text


@pytest.mark.parametrize("path", ["/", "/timeline", "/features/search"])
def test_an_iteration_without_a_task_title_is_shown_by_its_summary(
    browser: Browser, path: str
) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        ralph.feature("search").remember({"summary": "The ranker reads the index."})
    text = browser.text(path)
    assert "The ranker reads the index." in text
    assert "(no title)" not in text


def test_a_cost_that_no_client_tells_is_unknown_and_not_zero(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        ralph.feature("search").remember({"task_title": "Rank", "tokens_used": 4200})
    home = browser.text("/")
    assert "Cost unknown for 2 runs." in home
    assert "search 1 4.2k unknown" in home
    assert "Cost unknown" in browser.text("/features/search")
    assert all("$" not in browser.text(path) for path in ("/", "/features/search"))
    assert "cost unknown" in browser.text("/plan")


def test_a_session_that_was_interrupted_is_an_open_end(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        talk = ralph.conversations.start(title="Cut off")
        asked = "Can you finish the migration?"
        ralph.conversations.exchange(talk, user=asked, assistant="", status="interrupted")
    ends = browser.text("/").partition("Open ends")[2]
    assert "interrupted Cut off" in ends


def test_an_open_end_leads_to_its_feature_whatever_its_name(browser: Browser) -> None:
    task = {"feature": "C# & 50%?", "title": "Read it", "status": "in_progress"}
    import_plan(plan_of(browser), json.dumps({"tasks": [task]}), name="plan.yaml")
    [link] = re.findall(r'href="(/features/[^"]+)">[^<]*Read it<', browser.get("/"))
    assert "C# & 50%?" in browser.text(html.unescape(link))


def test_home_shows_repeated_mistakes_with_their_fix(browser: Browser) -> None:
    error = {"message": "make: *** No rule to make target 'dist'.", "resolution": "Edit Makefile"}
    with open_ralph(browser.site.project.root) as ralph:
        ralph.feature("search").remember_all(
            [{"task_title": "Build", "errors": [error], "session_id": f"r{n}"} for n in range(3)]
        )
    text = browser.text("/")
    assert "3 times make: *** No rule to make target 'dist'." in text
    assert "Fix: Edit Makefile" in text


def test_home_of_an_empty_project_says_what_to_do(tmp_path: Path) -> None:
    root = tmp_path / "empty"
    root.mkdir()
    Project(root).init()
    with served_page(root) as opened:
        assert "ralph hooks install --user" in opened.text("/")
        assert "ralph plan import" in opened.text("/plan")
        assert "ralph run" in opened.text("/timeline")


# -- timeline


def test_the_timeline_lists_newest_first_and_filters(browser: Browser) -> None:
    whole = browser.text("/timeline")
    assert whole.index("Why does the pool") < whole.index("Keep people") < whole.index("Add the l")

    def titles(asked: str) -> list[str]:
        names = ("Why does the pool", "Keep people signed in", "Add the login form")
        text = browser.text(f"/timeline?{asked}")
        return [name for name in names if name in text]

    assert titles("outcome=failure") == ["Keep people signed in"]
    assert titles("kind=exchange") == ["Why does the pool"]
    assert titles("feature=auth") == ["Keep people signed in", "Add the login form"]
    assert titles("text=VALIDATION") == ["Add the login form"]
    assert titles("until=2026-02-07") == ["Add the login form"]
    assert titles("since=2026-02-08&until=2026-02-09") == ["Keep people signed in"]
    assert titles("feature=none") == []
    assert "Nothing matches these filters. Remove one" in browser.text("/timeline?feature=none")


def test_the_timeline_shows_errors_decisions_and_files(browser: Browser) -> None:
    text = browser.text("/timeline?outcome=failure")
    assert "error AssertionError: Set-Cookie refused" in text
    assert "decided Use Redis" in text
    assert "src/app.py" in text


def test_the_timeline_is_paged(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        ralph.feature("search").remember_all(
            [{"task_title": f"Step {n:03}", "session_id": f"run {n}"} for n in range(120)]
        )
    first, last = browser.get("/timeline?kind=iteration"), browser.get("/timeline?page=99")
    assert "1 of 3 (122 in total)" in first
    assert html.unescape(first).count("/timeline?kind=iteration&page=2") == 1
    assert len(record_ids(first)) == 50
    assert "3 of 3" in last
    assert "Add the login form" in last


@pytest.mark.parametrize("asked", ["page=x", "page=-1", "page=99999999999", "since=nonsense"])
def test_odd_questions_are_answered(browser: Browser, asked: str) -> None:
    code = 400 if "since" in asked else 200
    browser.get(f"/timeline?{asked}", code=code)


# -- search


def test_search_shows_score_why_and_kind_and_opens_the_record(browser: Browser) -> None:
    text = browser.get("/search?q=session+cookie+refused+by+the+browser")

    assert "Why it matched</summary><p>words:" in text
    assert re.search(r'class="score relevant"[^>]*>[01]\.\d\d relevant<', text)
    assert '<span class="kind">iteration</span>' in text
    [first, *_] = record_ids(text)
    assert "The browser drops the session cookie." in browser.text(f"/record/{first}")


def test_weaker_results_are_shown_on_request(browser: Browser) -> None:
    store(browser.site.project.settings_file, "min_score", "1.0")
    asked = "/search?q=zebra+quantum+umbrella+violin+night"
    assert "Show weaker results" in browser.get(asked)
    assert record_ids(browser.get(f"{asked}&weak=1"))


def test_search_can_be_narrowed_to_kinds(browser: Browser) -> None:
    text = browser.get("/search?q=staging+database&kind=note")
    assert "resets every night" in text
    assert "resets every night" not in browser.get("/search?q=staging+database&kind=iteration")


def test_the_script_gets_the_results_alone(browser: Browser) -> None:
    text = browser.get("/search?q=staging+database&part=1")
    assert "resets every night" in text
    assert "<html" not in text


@pytest.mark.parametrize("question", ["", "a", "%00", "%F0%9F%98%80", "x" * 5000])
def test_any_question_is_answered(browser: Browser, question: str) -> None:
    browser.get(f"/search?q={question}")


# -- one record


def test_a_record_shows_everything_and_where_it_comes_from(browser: Browser) -> None:
    [identity] = record_ids(browser.get("/timeline?outcome=failure"))
    text = browser.text(f"/record/{identity}")

    for part in (
        "Keep people signed in",
        "AssertionError: Set-Cookie refused",
        "tests/test_session.py:88",
        "Use Redis because it is there",
        "read src/app.py",
        "journal .ralph/db/memory/auth.jsonl:2",
        "run run-7",
        identity,
    ):
        assert part in text
    assert browser.text(f"/record/{identity[:8]}") == text


def test_a_failure_leads_to_the_attempt_that_worked(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        done = {"task_id": 42, "task_title": "Keep people signed in", "outcome": "success"}
        later = ralph.feature("auth").remember(done)
    [identity] = record_ids(browser.get("/timeline?outcome=failure"))
    assert f'href="/record/{later.id}">iteration 3<' in browser.get(f"/record/{identity}")


def test_records_of_every_kind_open(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        waiting = gates.reject(ralph, 1, "design", "No tokens in URLs")
        ralph.knowledge.capture_failure_solution(
            failure_description="Tests fail in CI",
            error_message="OperationalError: no such table",
            solution_steps="Run the migrations first",
        )
        ralph.knowledge.checkpoint()
        document = browser.site.project.root / "notes.md"
        document.write_text("# Deploy\n\nPush the tag.\n", encoding="utf-8")
        from ralph.memory.documents import add_documents

        add_documents(ralph.conversations, [document], root=ralph.project.root)
        kinds = {hit.kind: hit.id for hit in ralph.recent(50)}
        every = [hit for one in ralph.own.streams() for hit in one.find("")]
        every += [*ralph.conversations.find(""), *ralph.knowledge.find("")]
        kinds |= {hit.kind: hit.id for hit in every}
        kinds["pattern"] = ralph.knowledge.patterns()[0].id
    kinds["gate"] = waiting.id
    wanted = "iteration note learning feature exchange conversation document failure_solution"
    assert {*wanted.split(), "pattern", "gate"} <= set(kinds)
    for kind, identity in kinds.items():
        text = browser.text(f"/record/{identity}")
        assert "Where it comes from" in text, kind
        assert identity in text


def test_an_exchange_shows_what_hooks_told_the_model_in_it(browser: Browser) -> None:
    project = browser.site.project
    with open_ralph(project.root) as ralph:
        [note] = ralph.recent(1, kinds=["note"])
        talk = ralph.conversations.start(title="Told", session="s1", source="claude-code")
        times = {"started": "2026-03-01T10:00:00Z", "completed": "2026-03-01T10:05:00Z"}
        times["key"] = "one"
        said = ralph.conversations.exchange(talk, user="Reset?", assistant="Nightly.", **times)
        run = run_name("s1", "one")
        work = ralph.feature("auth").remember({"task_title": "Reset", "session_id": run})
    folder = Path(hooks_folder(project.root, project.home))
    disk.make_folder(folder)
    line = {"event": "user-prompt-submit", "session": "s1", "agent": "claude"}
    lines = [
        {"at": "2026-03-01T10:00:01Z", "shown": [[note.id, 0.9]], **line},
        {"at": "2026-03-01T10:00:02Z", "shown": [["gone0000", None]], **line},
        {"at": "2026-03-01T11:00:00Z", "shown": [["later000", 0.8]], **line},
    ]
    text = "".join(json.dumps(one) + "\n" for one in lines)
    (folder / "activity.jsonl").write_text(text, encoding="utf-8")

    for identity in (said.id, work.id):
        shown = browser.text(f"/record/{identity}").partition(SHOWN)[2]

        assert "note The staging database resets every night." in shown
        assert shown.count("It has since been forgotten.") == 1


def test_an_iteration_shows_what_the_prompt_of_the_loop_told(browser: Browser) -> None:
    project = browser.site.project
    with open_ralph(project.root) as ralph:
        [note] = ralph.recent(1, kinds=["note"])
        done = {"session_id": "s9", "timestamp": "2026-03-01T10:00:00.123Z"}
        first = ralph.feature("auth").remember({"task_title": "Reset", "session_id": "s8"})
        work = ralph.feature("auth").remember({"task_title": "Reset again", **done})
    folder = hooks_folder(project.root, project.home)
    at = {"at": "2026-03-01T10:00:00Z"}
    note_activity(folder, "run-attempts", "s9", shown=[(first.id, None)], **at)
    for _ in range(2):  # a loop that was killed may note it again
        note_activity(folder, "run-warnings", "s9", shown=[(first.id, None)], **at)
    note_activity(folder, "run-learnings", "s9", shown=[(note.id, None)], at="2026-03-01T11:00:00Z")

    shown = browser.text(f"/record/{work.id}").partition(SHOWN)[2]

    assert "Reset earlier attempt" in shown
    assert shown.count("Reset warning about an earlier error") == 1
    assert "staging database" not in shown  # of another prompt of that session


def test_days_and_amounts_are_written_for_people(browser: Browser) -> None:
    made = {"cost_usd": 0.25, "duration_ms": 61_000, "timestamp": "2026-03-01T12:00:00Z"}
    with open_ralph(browser.site.project.root) as ralph:
        work = ralph.feature("auth").remember({"task_title": "Reset", "tokens_used": 4200, **made})
    assert "Sunday, March 1, 2026" in browser.text("/timeline")
    assert re.search(r'<time data-clock datetime="2026-03-01T[^"]+">', browser.get("/timeline"))
    assert "tokens 4.2k cost $0.25 duration 1 min 1 s" in browser.text(f"/record/{work.id}")


def test_a_long_text_is_cut_and_shown_whole_on_request(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        talk = ralph.conversations.start(title="Long")
        said = ralph.conversations.exchange(talk, user="Go", assistant="word " * 3000 + "THEEND")
    assert "THEEND" not in browser.get(f"/record/{said.id}")
    assert "Show all" in browser.get(f"/record/{said.id}")
    assert "THEEND" in browser.get(f"/record/{said.id}?all=1")


# -- forget


def test_forgetting_lists_what_goes_and_then_forgets_it(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        [talk] = ralph.conversations.states()
    confirm = browser.text(f"/forget?id={talk}")
    assert "Forget 2 records for good?" in confirm
    assert "Debug timeouts" in confirm
    assert "Why does the pool time out?" in confirm
    assert "Why does the pool" in browser.text("/timeline")

    after = browser.post("/forget", id=talk, reason="private")

    assert "Forgot 2 records" in after
    assert "Why does the pool" not in browser.text("/timeline")
    browser.get(f"/record/{talk}", code=404)


def test_forgetting_what_is_not_there_changes_nothing(browser: Browser) -> None:
    assert "no record" in browser.get("/forget?id=ffffffff", code=404)
    assert "no record" in browser.post("/forget", code=404, id="ffffffff")
    assert "no record" in browser.post("/forget", code=404, id="")


# -- features


def test_features_are_listed_with_how_the_work_goes(browser: Browser) -> None:
    text = browser.text("/plan")
    assert "Signing in 0 of 2 tasks done 2 iterations 50% success" in text
    assert "last: failure" in text
    assert "search 0 of 1 task done 0 iterations" in text


def test_a_feature_shows_state_tasks_outcomes_files_and_learnings(browser: Browser) -> None:
    text = browser.text("/features/auth")
    for part in (
        "0/2 tasks complete",
        "People sign in with a name and a password.",
        "A form posts to src/login.py",
        "No third-party identity providers.",
        "Add the login form",
        "src/app.py 2 iterations",
        "The cookie must be set before the redirect. human reviewed",
        "Hashes are compared in constant time. auto unverified",
        "Success rate 50%",
    ):
        assert part in text
    assert 'class="cell failure"' in browser.get("/features/auth")


def test_a_feature_that_only_memory_has_is_shown_too(browser: Browser) -> None:
    with open_ralph(browser.site.project.root) as ralph:
        ralph.feature("a b/c?".replace("/", "-")).remember({"task_title": "Odd name"})
    assert "Odd name" in browser.text("/features/a%20b-c%3F")
    assert "The plan does not have this feature" in browser.text("/features/a%20b-c%3F")
    assert "a%20b-c%3F" in browser.get("/plan")


def form_of(browser: Browser) -> dict[str, str]:
    text = browser.get("/features/auth/edit")
    found = re.findall(r'<input[^>]*name="(was_\w+|display_name)" value="([^"]*)"', text)
    areas = re.findall(r'<textarea name="(\w+)"[^>]*>\n(.*?)</textarea>', text, re.S)
    return {name: html.unescape(value) for name, value in [*found, *areas]}


def test_the_texts_of_a_feature_are_changed_by_the_rules_of_the_plan(browser: Browser) -> None:
    form = form_of(browser)
    after = browser.post("/features/auth/edit", form | {"boundaries": "No\r\ncookies."})

    assert "Saved: boundaries." in after
    feature = plan_of(browser).feature("auth")
    assert feature.boundaries == "No\ncookies."
    assert feature.architecture == form["architecture"]
    raw = (browser.site.project.db / "features.yaml").read_text(encoding="utf-8")
    assert "# People's own words stay." in raw


def test_what_somebody_else_changed_meanwhile_is_not_overwritten(browser: Browser) -> None:
    from ralph.plan.edit import update_feature

    form = form_of(browser)
    update_feature(plan_of(browser), "auth", {"boundaries": "Theirs."})
    said = browser.post("/features/auth/edit", form | {"boundaries": "Mine."}, code=400)
    assert "changed by someone else" in said
    browser.post("/features/auth/edit", form | {"boundaries": "Theirs.", "architecture": "New."})
    assert plan_of(browser).feature("auth").boundaries == "Theirs."
    assert plan_of(browser).feature("auth").architecture == "New."


def test_a_text_that_is_too_long_is_refused(browser: Browser) -> None:
    form = form_of(browser) | {"boundaries": "x" * 2000}
    assert "at most 1500" in browser.post("/features/auth/edit", form, code=400)


# -- learnings


def undo_key(text: str) -> str:
    [key] = re.findall(r'name="key" value="([^"]+)"', text)
    return str(key)


@pytest.mark.parametrize("action", ["remove", "review"])
def test_a_learning_is_removed_or_reviewed_and_that_can_be_undone(
    browser: Browser, action: str
) -> None:
    before = plan_of(browser).feature("auth").learnings
    target = before[1]
    after = browser.post(f"/features/auth/learnings/{action}", learning=target.id)

    now_there = {one.id: one for one in plan_of(browser).feature("auth").learnings}
    if action == "remove":
        assert target.id not in now_there
        assert learnings.add(plan_of(browser), "auth", target.text).what == "removed_before"
    else:
        assert now_there[target.id].reviewed
    said = browser.post("/undo", key=undo_key(after), back="/features/auth")
    assert "as it was" in said
    assert set(plan_of(browser).feature("auth").learnings) == set(before)
    assert learnings.add(plan_of(browser), "auth", target.text).what == "known"
    assert "no longer be undone" in browser.post("/undo", code=404, key=undo_key(after))


def test_a_person_adds_a_learning(browser: Browser) -> None:
    after = browser.post("/features/auth/learnings/add", text="Run the tests with -n 2.")
    assert "Run the tests with -n 2." in after
    added = plan_of(browser).feature("auth").learnings[-1]
    assert added.source == "human"
    assert "without text" in browser.post("/features/auth/learnings/add", code=400, text=" ")


def test_contradictions_stand_side_by_side(browser: Browser) -> None:
    text = "The cookie must not be set before the redirect."
    added = learnings.add(plan_of(browser), "auth", text)
    assert added.conflicts
    shown = browser.get("/features/auth").partition('class="versus"')[2]
    assert text in shown
    assert "The cookie must be set before the redirect." in shown


# -- gates


def test_work_is_rejected_with_feedback_and_its_revision_approved(browser: Browser) -> None:
    verdict = {"task": "1", "gate": "design"}
    after = browser.post("/features/auth/gate", verdict, verdict="reject", text="No tokens")
    assert "The feedback is on the task" in after
    assert "Rejected, waiting for a revision" in after
    assert plan_of(browser).task(1).comments[-1].text.endswith("No tokens")

    done = browser.post("/features/auth/gate", verdict, verdict="approve", text="Signed cookies")

    assert "waits for a checkpoint" in done
    assert "Rejected, waiting for a revision" not in done
    with open_ralph(browser.site.project.root) as ralph:
        [staged] = ralph.knowledge.staged()
    assert isinstance(staged.record, GateRejection)
    assert staged.record.revision_approach == "Signed cookies"
    assert staged.record.subject == "Add the login form"


def test_an_approval_without_words_takes_the_newest_success(browser: Browser) -> None:
    said = browser.post("/features/auth/gate", code=404, task="1", gate="design", verdict="approve")
    assert "No successful iteration of task 1" in said
    with open_ralph(browser.site.project.root) as ralph:
        done = {"task_id": 1, "task_title": "Form", "outcome": "success", "summary": "A form."}
        ralph.feature("auth").remember({**done, "timestamp": now()})
    browser.post("/features/auth/gate", task="1", gate="design", verdict="approve")
    with open_ralph(browser.site.project.root) as ralph:
        [staged] = ralph.knowledge.staged()
    assert isinstance(staged.record, GateApproval)
    assert staged.record.approved_approach == "A form."


# -- the loop under way


def test_an_iteration_under_way_is_shown_live(browser: Browser) -> None:
    from ralph.loop.agent import PendingIteration, RunFolder
    from ralph.loop.process import LOCK
    from ralph.plan.guard import Guard

    folder = RunFolder(browser.site.project.cache / "runs")
    work = PendingIteration(
        feature="auth",
        task_id=1,
        title="Add the login form",
        discipline="",
        review=False,
        started_at=now(),
        agent="claude",
        plan_before="",
        task_before=None,
    )
    place = folder.begin(work, Guard(plan_of(browser)).snapshot())
    assert "did not finish" in browser.get("/live")
    with disk.lock(place / LOCK, timeout_s=1.0):
        assert "works on" in browser.get("/live")
        assert "Add the login form" in browser.text("/")
    folder.finish(work)
    assert "works on" not in browser.get("/live")
