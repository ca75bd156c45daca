"""Feature memory: what is kept, what is refused, and what comes back."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from journaling import run_child
from remembering import ToyEmbedder, files_holding, made, open_toy, summaries, topical

from ralph import open_ralph, records
from ralph.errors import BadInput, BadRecord, NotFound
from ralph.memory.feature import FeatureMemory
from ralph.memory.ralph import Ralph
from ralph.memory.transfer import import_lines
from ralph.records import Source
from ralph.records.iteration import Decision, ErrorSeen, FileTouched, Iteration

QUESTION = "login form validation"


@pytest.fixture
def auth(memory: Ralph) -> FeatureMemory:
    return memory.feature("auth")


# -- remember


def test_an_iteration_comes_back_as_it_was_given(auth: FeatureMemory) -> None:
    given = Iteration(
        feature="auth",
        task_id=42,
        task_title="Validate the login form",
        discipline="frontend",
        timestamp="2026-02-07T14:30:00Z",
        outcome="partial",
        summary="Added a check for empty passwords.",
        errors=(ErrorSeen("TypeError: x is undefined", "runtime", "src/login.ts", 12),),
        decisions=(Decision("validate on blur", "typing must not be interrupted"),),
        files_touched=(FileTouched("src/login.ts", "modified"),),
        tokens_used=1234,
        cost_usd=0.25,
        duration_ms=90_000,
        model="some-model",
        model_tier="haiku",
        session_id="f3b4f0b2-0000-4000-8000-000000000000",
    )
    remembered = auth.remember(given)
    expected = given.to_json() | {"iteration_number": 1}
    assert remembered.record.to_json() == expected
    assert auth.get(remembered.id).record.to_json() == expected
    assert auth.search("empty passwords")[0].record.to_json() == expected
    assert remembered.fresh
    assert remembered.kind == "iteration"


def test_json_like_data_is_as_good_as_an_iteration(auth: FeatureMemory) -> None:
    remembered = auth.remember(
        {
            "task_id": "T-7",
            "summary": "login form validation",
            "outcome": "failure",
            "errors": [{"message": "it broke", "error_type": "test"}],
            "files_touched": [{"path": "a.py", "action": "read"}],
        }
    )
    assert remembered.record.task_id == "T-7"
    assert remembered.record.errors == (ErrorSeen("it broke", "test"),)


@pytest.mark.parametrize(
    ("plain", "named"),
    [
        ({"summary": 7}, "summary"),
        ({"summary": "x", "outcom": "success"}, "outcome"),
        ({"summary": "x", "outcome": "splendid"}, "outcome"),
        ({"summary": "x", "errors": [7]}, "errors"),
        ({"summary": "x", "errors": [{"message": "m", "error_type": "odd"}]}, "error_type"),
        ({"summary": "x", "files_touched": [{"path": "a"}]}, "action"),
        ({"summary": "x", "cost_usd": "free"}, "cost_usd"),
        ({"summary": "x", "timestamp": "yesterday"}, "timestamp"),
        ({"summary": "x", "iteration_number": 0}, "iteration_number"),
        ({"summary": "x", "iteration_number": -3}, "iteration_number"),
        ({"summary": "x", "iteration_number": 2**53}, "iteration_number"),
        ({"summary": "x", "iteration_number": 2**80}, "iteration_number"),
        ({"summary": "x", "tokens_used": -1}, "tokens_used"),
        ({"summary": "x", "duration_ms": -1}, "duration_ms"),
        ({"summary": "x", "cost_usd": -0.5}, "cost_usd"),
        ({"summary": "x", "cost_usd": float("inf")}, "cost_usd"),
        ({"summary": "x", "cost_usd": float("nan")}, "cost_usd"),
    ],
)
def test_a_field_that_does_not_fit_is_named_and_nothing_is_written(
    auth: FeatureMemory, project: Path, plain: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadRecord, match=named):
        auth.remember(plain)
    assert list((project / ".ralph" / "db" / "memory").glob("*.jsonl")) == []


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"task_title": 5}, "task_title"),
        ({"outcome": "great"}, "outcome"),
        ({"files_touched": ["a.py"]}, "files_touched"),
        ({"errors": [object()]}, "object"),
    ],
)
def test_an_iteration_made_with_wrong_types_is_refused_before_it_is_written(
    auth: FeatureMemory, project: Path, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadRecord, match=named):
        auth.remember(Iteration(**({"summary": "x"} | fields)))
    assert list((project / ".ralph" / "db" / "memory").glob("*.jsonl")) == []


def test_a_number_far_ahead_does_not_use_up_all_numbers(auth: FeatureMemory) -> None:
    with pytest.raises(BadRecord):
        auth.remember(made("far ahead", iteration_number=2**53 - 1))
    assert auth.remember(made("the next one")).record.iteration_number == 1


@pytest.mark.parametrize(
    "nothing",
    [
        Iteration(),
        Iteration(outcome="success", tokens_used=5, model="m", discipline="d", task_id=3),
        Iteration(summary="   "),
        Iteration(task_title="\n"),
        Iteration(files_touched=(FileTouched("/etc/passwd", "read"),)),
    ],
)
def test_an_iteration_that_says_nothing_is_refused(auth: FeatureMemory, nothing: Iteration) -> None:
    with pytest.raises(BadRecord, match="nothing in this iteration to remember"):
        auth.remember(nothing)


def test_the_same_error_is_kept_once(auth: FeatureMemory) -> None:
    errors = [{"message": "it broke"}] * 60 + [{"message": "it broke", "line": 3}]
    kept = auth.remember({"summary": "x", "errors": errors})
    assert kept.record.errors == (ErrorSeen("it broke"), ErrorSeen("it broke", line=3))


def test_a_project_keeps_json_like_data_under_the_features_it_names(memory: Ralph) -> None:
    kept = memory.remember_all(
        [{"feature": "b", "summary": "one"}, Iteration(feature="a", summary="two")]
    )
    assert [(one.record.feature, one.record.summary) for one in kept] == [
        ("b", "one"),
        ("a", "two"),
    ]


def test_many_are_kept_or_none(auth: FeatureMemory) -> None:
    with pytest.raises(BadRecord):
        auth.remember_all([made("fine", session_id="1"), Iteration()])
    assert auth.recent() == []
    many = auth.remember_all(topical(5))
    assert [one.record.iteration_number for one in many] == [1, 2, 3, 4, 5]
    assert auth.remember_all([]) == []


def test_remembering_the_same_again_is_one_record(auth: FeatureMemory) -> None:
    first = auth.remember(made("identical wording", session_id="run-1"))
    again = auth.remember(made("identical wording", session_id="run-1"))
    assert (again.id, again.fresh) == (first.id, False)
    assert again.record.iteration_number == 1
    assert len(auth.iterations()) == 1
    assert len(auth.search("identical wording")) == 1


def test_the_same_work_in_another_run_is_another_record(auth: FeatureMemory) -> None:
    ids = {auth.remember(made("the same", session_id=f"run-{n}")).id for n in range(3)}
    assert len(ids) == 3
    assert [hit.record.iteration_number for hit in auth.recent()] == [3, 2, 1]


def test_ids_are_the_same_wherever_the_project_is(tmp_path: Path) -> None:
    ids = []
    for name in ("one", "two"):
        metadata = tmp_path / name / ".ralph" / "db" / "metadata.yaml"
        metadata.parent.mkdir(parents=True)
        metadata.write_text("project_id: 0b2f9d3e-1111-4222-8333-444455556666\n")
        with open_toy(tmp_path / name) as memory:
            auth = memory.feature("auth")
            ids.append([auth.remember(one).id for one in topical(3)])
    assert ids[0] == ids[1]
    # Written down once: these must not change with a new version of anything.
    assert ids[0] == [
        "6600fbbe-5ab0-58cf-8ec2-a0bb709f40d7",
        "6dbde8ea-09cd-50ee-9e2d-b4ba8717c98d",
        "a2ab2736-2958-5f9e-8253-a2ef86443a63",
    ]


def test_each_text_of_an_iteration_is_redacted_once(
    auth: FeatureMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    redacted: list[str] = []

    def counting(text: str) -> str:
        redacted.append(text)
        return text

    monkeypatch.setattr("ralph.text.redact.redact", counting)
    records.clean_text.cache_clear()
    auth.remember(
        Iteration(
            task_title="Round the invoice",
            summary="Half cents are rounded to even",
            errors=(ErrorSeen(message="AssertionError", file_path="src/invoice.py"),),
            files_touched=(FileTouched("src/rounding.py", "modified"),),
            session_id="0b6c5d0e-8f1f-4f0a-9d43-5d3f0e0d5a11",
        )
    )
    records.clean_text.cache_clear()

    assert sorted(redacted) == sorted(set(redacted))
    assert {"Round the invoice", "src/invoice.py", "src/rounding.py"} <= set(redacted)


def test_a_source_is_kept_in_the_journal(auth: FeatureMemory, project: Path) -> None:
    auth.remember(made("told by a file"), source=Source(file="runs/7.jsonl", line=3))
    line = json.loads((project / ".ralph" / "db" / "memory" / "auth.jsonl").read_text())
    assert line["source"] == {"file": "runs/7.jsonl", "line": 3}


def test_two_processes_that_remember_at_once_get_distinct_numbers(
    auth: FeatureMemory, project: Path
) -> None:
    script = """
    import sys
    from remembering import made, open_toy
    with open_toy(sys.argv[1]) as memory:
        for n in range(25):
            iteration = made("identical wording", session_id=f"{sys.argv[2]}-{n}")
            done = memory.feature("auth").remember(iteration)
            print(done.record.iteration_number)
    """
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda name: run_child(script, project, name), "abc"))
    numbers = sorted(int(number) for run in runs for number in run)
    assert numbers == list(range(1, 76))
    assert auth.verify() == (75, [])
    [hit] = auth.search("identical wording", limit=20)
    assert len(hit.like) == 74  # they all say the same


# -- search


def test_a_hit_says_when_how_surely_and_why(auth: FeatureMemory) -> None:
    auth.remember_all(topical(10))
    hit = auth.search("login form validation")[0]
    assert hit.when == "iteration 1, 9 iterations ago"
    assert hit.relevance == "relevant"
    assert hit.score is not None
    assert 0.55 <= hit.score <= 1.0
    assert hit.why is not None
    assert "login" in hit.why
    assert hit.parts is not None
    assert hit.parts.words_rank == 1
    assert auth.search("upload resumes after")[0].when == "iteration 10, the latest"
    assert auth.search("dark theme contrast")[0].when == "iteration 9, 1 iteration ago"


@pytest.mark.parametrize("query", ["", " ", "a", "ab", "  ab \n", "??"])
def test_a_query_that_is_too_short_gets_an_example(auth: FeatureMemory, query: str) -> None:
    with pytest.raises(BadInput, match='for example: "login form validation"'):
        auth.search(query)


@pytest.mark.parametrize(
    "query", ["???", "the", "。", "日", "\0\0\0", "a" * 10_000, "\udcff\udcfe x"]
)
def test_an_odd_query_gets_an_answer_and_no_error(auth: FeatureMemory, query: str) -> None:
    auth.remember_all(topical(20))
    assert len(auth.search(query)) == 0


def test_a_very_long_query_finds_what_it_is_about(auth: FeatureMemory) -> None:
    auth.remember_all(topical(20))
    words = " ".join(f"filler{n}" for n in range(3000))
    assert len(auth.search(f"{words} {QUESTION}", min_score=0.0)) > 0
    assert len(auth.search('NEAR("login" AND) OR * : ^ {form} - validation')) == 2


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_under_one_is_refused(auth: FeatureMemory, limit: int) -> None:
    with pytest.raises(BadInput, match="limit must be at least 1"):
        auth.search(QUESTION, limit=limit)


@pytest.mark.parametrize("floor", [-0.1, 1.01, float("nan"), float("inf")])
def test_a_floor_outside_zero_and_one_is_refused(auth: FeatureMemory, floor: float) -> None:
    with pytest.raises(BadInput, match="min_score goes from 0 to 1"):
        auth.search(QUESTION, min_score=floor)


def test_there_are_never_more_than_twenty_hits(auth: FeatureMemory) -> None:
    auth.remember_all(topical(300))
    assert len(auth.search(QUESTION, limit=1000)) == 20
    assert len(auth.search(QUESTION)) == 10
    assert len(auth.search(QUESTION, limit=3)) == 3


def test_no_hit_is_under_the_floor_and_all_scores_are_between_zero_and_one(
    auth: FeatureMemory,
) -> None:
    auth.remember_all(topical(60))
    for question in ("login form", "accents", "invoice totals rounded", "worker retries jitter"):
        for floor in (0.0, 0.4, 0.55, 0.9, 1.0):
            scores = [hit.score for hit in auth.search(question, limit=20, min_score=floor)]
            assert all(score is not None and floor <= score <= 1.0 for score in scores)
        assert all((hit.score or 0.0) >= 0.40 for hit in auth.search(question, limit=20))


@pytest.mark.parametrize(
    "question",
    ["how to bake sourdough bread", "train timetable to Lisbon", "who won the chess tournament"],
)
def test_an_unrelated_question_gets_nothing(project: Path, question: str) -> None:
    with open_ralph(project) as memory:  # with the real embedder
        memory.feature("auth").remember_all(topical(100))
        assert memory.feature("auth").search(question) == []
        assert len(memory.feature("auth").search("validating the login form")) > 0


def test_meaning_finds_what_shares_no_word(project: Path) -> None:
    with open_ralph(project) as memory:
        auth = memory.feature("auth")
        auth.remember_all(topical(10))
        auth.remember(made("Users could not sign in because the password hash was outdated."))
        found = auth.search("authentication of accounts with old credentials", min_score=0.0)
        assert "sign in" in found[0].record.summary


def test_searching_a_feature_that_has_no_memory_finds_nothing(memory: Ralph) -> None:
    assert memory.feature("empty").search(QUESTION) == []
    assert memory.search(QUESTION) == []
    assert memory.search(QUESTION, features=["empty", "other"]) == []
    assert memory.store.journals.names() == []


# -- the other questions


def test_more_than_any_memory_holds_may_be_asked_for(tmp_path: Path) -> None:
    with open_ralph(tmp_path, home=tmp_path / "home") as ralph:
        ralph.feature("auth").remember({"task_title": "Login", "summary": "The form posts."})
        assert len(ralph.recent(2**63)) == 1


def test_recent_is_newest_first(auth: FeatureMemory) -> None:
    auth.remember_all(topical(15))
    assert [hit.record.iteration_number for hit in auth.recent()] == list(range(15, 5, -1))
    assert [hit.record.iteration_number for hit in auth.recent(2)] == [15, 14]
    assert auth.recent(2)[0].score is None
    assert auth.recent(2)[1].when == "iteration 14, 1 iteration ago"
    assert len(auth.recent(1000)) == 15
    with pytest.raises(BadInput, match="count"):
        auth.recent(0)


def test_failed_attempts_are_failures_and_timeouts(auth: FeatureMemory) -> None:
    for n, outcome in enumerate(
        ["success", "failure", "partial", "timeout", "rate_limited", "unknown", "failure"]
    ):
        auth.remember({"summary": f"{outcome} {n}", "outcome": outcome, "task_id": n % 2})
    assert summaries(auth.failed_attempts()) == ["failure 6", "timeout 3", "failure 1"]
    assert summaries(auth.failed_attempts(task_id=1)) == ["timeout 3", "failure 1"]
    assert summaries(auth.failed_attempts(task_id="1")) == ["timeout 3", "failure 1"]
    assert auth.failed_attempts(task_id=9) == []


def test_files_are_counted_with_what_was_done_to_them(auth: FeatureMemory) -> None:
    touched = [
        [("src/a.py", "read"), ("src/b.py", "created")],
        [("src/a.py", "modified")],
        [("src/a.py", "read"), ("src/c.py", "deleted")],
    ]
    for n, files in enumerate(touched):
        pairs = [{"path": path, "action": action} for path, action in files]
        auth.remember({"summary": f"work {n}", "files_touched": pairs})
    assert [(f.path, f.actions, f.count, f.last_iteration) for f in auth.files()] == [
        ("src/a.py", ("read", "modified"), 3, 3),
        ("src/c.py", ("deleted",), 1, 3),
        ("src/b.py", ("created",), 1, 1),
    ]


def test_get_takes_an_id_or_its_beginning(memory: Ralph, auth: FeatureMemory) -> None:
    ids = [one.id for one in auth.remember_all(topical(50))]
    assert auth.get(ids[7]).record.iteration_number == 8
    assert auth.get(ids[7].upper()[:13]).id == ids[7]
    assert memory.get(ids[7][:13]).id == ids[7]
    with pytest.raises(NotFound):
        auth.get("ffffffff-ffff")
    with pytest.raises(NotFound):
        memory.get("ffffffff-ffff")
    letter = max("0123456789abcdef", key=lambda c: sum(i.startswith(c) for i in ids))
    with pytest.raises(BadInput, match="give more of it"):
        auth.get(letter)


def test_a_feature_reads_only_its_own(memory: Ralph, auth: FeatureMemory) -> None:
    theirs = memory.feature("billing").remember(made("billing matters", session_id="b"))
    auth.remember(made("login matters", session_id="a"))
    assert summaries(auth.recent()) == ["login matters"]
    assert auth.search("billing matters", min_score=0.0)[0].record.feature == "auth"
    with pytest.raises(NotFound):
        auth.get(theirs.id)
    assert memory.get(theirs.id).id == theirs.id


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\0b", "x" * 101, "\u200b"])
def test_a_name_that_nobody_can_see_or_keep_is_refused(memory: Ralph, name: str) -> None:
    with pytest.raises(BadInput):
        memory.feature(name)


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "../../escape",
        "a/b\\c",
        "con",
        ".hidden",
        "ünï-çødé",
        "機能",
        "a%2Fb",
        "a.",
        "'\"?*<>|",
    ],
)
def test_any_other_name_works_and_stays_inside_the_folder(
    memory: Ralph, project: Path, name: str
) -> None:
    memory.feature(name).remember(made("login form validation"))
    assert memory.store.journals.names() == [name]
    assert len(memory.search(QUESTION)) == 1
    assert memory.search(QUESTION)[0].record.feature == name
    everywhere = {f.parent for f in project.parent.rglob("*.jsonl")}
    assert everywhere == {project / ".ralph" / "db" / "memory"}


# -- bringing in


def test_an_import_steps_over_what_is_no_record_of_ours_and_keeps_the_rest(
    memory: Ralph, auth: FeatureMemory, project: Path
) -> None:
    auth.remember(made("login form validation", session_id="1"))
    journal = project / ".ralph" / "db" / "memory" / "auth.jsonl"
    lines = [
        b'{"v":1,"kind":"learning","id":"x","number":1,"at":"2026-01-01T00:00:00Z","body":[]}',
        b"nonsense",
        *journal.read_bytes().splitlines(),
    ]
    came = import_lines(memory, lines, name="there.jsonl")
    assert (came.added, came.known) == (0, 1)
    assert [(complaint.file, complaint.line) for complaint in came.complaints] == [
        ("there.jsonl", 1),
        ("there.jsonl", 2),
    ]


# -- limits


def test_texts_are_cut_at_their_limits_and_say_so(auth: FeatureMemory) -> None:
    kept = auth.remember(
        made(
            "s" * 5000,
            task_title="t" * 5000,
            errors=tuple(ErrorSeen(f"{n} " + "e" * 5000) for n in range(80)),
            decisions=tuple(Decision(f"{n} " + "d" * 5000, "r" * 5000) for n in range(80)),
            files_touched=tuple(FileTouched(f"f{n}.py", "read") for n in range(800)),
        )
    ).record
    assert len(kept.summary) == 2000
    assert kept.summary.endswith("s [truncated]")
    assert len(kept.task_title) == 300
    assert [len(kept.errors), len(kept.decisions), len(kept.files_touched)] == [50, 50, 500]
    assert {len(error.message) for error in kept.errors} == {1000}
    assert {len(decision.description) for decision in kept.decisions} == {500}
    assert {len(decision.rationale or "") for decision in kept.decisions} == {500}
    assert all(error.message.endswith(" [truncated]") for error in kept.errors)


def test_a_text_at_its_limit_is_not_cut(auth: FeatureMemory) -> None:
    assert auth.remember(made("s" * 2000)).record.summary == "s" * 2000


def test_no_more_of_a_record_is_embedded_than_the_limit(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralph.records.iteration.EMBEDDING_CHARS", 40)
    with open_toy(project) as memory:
        toy = memory.store.embedder
        assert isinstance(toy, ToyEmbedder)
        memory.feature("auth").remember(made("word " * 50))
        assert {len(text) for text in toy.embedded} <= set(range(41))


# -- secrets


def fake_secrets() -> dict[str, str]:
    """Made at run time, so that no file of ours holds anything that looks like one."""
    body = "".join(chr(ord("a") + (7 * n) % 26) + str((3 * n) % 10) for n in range(24))
    return {
        "github": "gh" + "p_" + body[:36],
        "aws": "AK" + "IA" + "QXZJ4WN7RTPLB2VD",
        "openai": "s" + "k-proj-" + body[:48],
        "slack": "xo" + "xb-" + "123456789012-123456789012-" + body[:24],
        "url": "postgres://admin:" + "hunter2horse9" + "@db.internal/prod",
        "bearer": "Bearer " + "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0." + body[:43],
    }


def secret_part(kind: str, secret: str) -> str:
    return {"url": "hunter2horse9", "bearer": secret[-43:]}.get(kind, secret)


@pytest.mark.parametrize("kind", sorted(fake_secrets()))
def test_a_secret_reaches_no_file_whatever_field_it_stands_in(
    memory: Ralph, project: Path, home: Path, kind: str
) -> None:
    secret = fake_secrets()[kind]
    kept = memory.feature("auth").remember(
        Iteration(
            task_id=f"task {secret}",
            task_title=f"Fix {secret} now",
            discipline=f"dis {secret}",
            summary=f"I used {secret} to log in. " + "x" * 3000 + secret,
            errors=(ErrorSeen(f"401 for {secret}", "runtime", f"logs/{secret}.txt", 1),),
            decisions=(Decision(f"keep {secret}", f"since {secret}"),),
            files_touched=(FileTouched(f"secrets/{secret}/file.txt", "read"),),
            model=f"model {secret}",
            session_id=f"{secret}",
        ),
        source=Source(run=f"run {secret}", file=f"out/{secret}.jsonl", line=1),
    )
    memory.feature("auth").search(f"log in with {secret}")
    memory.close()
    hidden = secret_part(kind, secret)
    assert files_holding(project, hidden) == []
    assert files_holding(home.parent, hidden) == []
    assert hidden not in json.dumps(kept.record.to_json())
    assert "[redacted:" in kept.record.summary
    assert "to log in" in kept.record.summary


def test_runs_whose_names_hold_secrets_stay_different_runs(auth: FeatureMemory) -> None:
    one, two = (fake_secrets()["github"][:-1] + letter for letter in "ab")
    ids = {auth.remember(made("work", session_id=run, iteration_number=1)).id for run in (one, two)}
    assert len(ids) == 2
    again = auth.remember(made("work", session_id=one, iteration_number=1))
    assert again.id in ids
    assert not again.fresh


def test_an_ordinary_run_id_is_kept_as_it_is(auth: FeatureMemory) -> None:
    run = "3f2a9c1e-7b1d-4c55-9f0e-1a2b3c4d5e6f"
    assert auth.remember(made("work", session_id=run)).record.session_id == run


# -- anything at all

printable = st.text(max_size=60)
iterations = st.builds(
    Iteration,
    task_id=st.one_of(st.none(), st.integers(-(2**60), 2**60), printable),
    task_title=printable,
    discipline=printable,
    summary=printable,
    outcome=st.sampled_from(["success", "failure", "partial", "timeout", "unknown"]),
    errors=st.lists(st.builds(ErrorSeen, printable, st.just("test"), printable), max_size=3).map(
        tuple
    ),
    decisions=st.lists(st.builds(Decision, printable, printable), max_size=3).map(tuple),
    files_touched=st.lists(st.builds(FileTouched, printable, st.just("read")), max_size=3).map(
        tuple
    ),
    session_id=st.one_of(st.none(), printable),
)


@settings(max_examples=examples(60))
@given(many=st.lists(iterations, min_size=1, max_size=4), odd=st.text(max_size=20))
def test_whatever_is_remembered_can_be_read_back_and_searched(
    tmp_path_factory: pytest.TempPathFactory, many: list[Iteration], odd: str
) -> None:
    root = tmp_path_factory.mktemp("any")
    with open_toy(root) as memory:
        auth = memory.feature("auth")
        kept = []
        for given in many:
            with contextlib.suppress(BadRecord):  # some of them say nothing
                kept.append(auth.remember(given))
        assert auth.verify() == (len({one.id for one in kept}), [])
        for one in kept:
            assert one.record in [hit.record for hit in auth.find(one.id)]
            assert auth.remember(one.record).id == one.id
        auth.search(f"{odd} login form")
        auth.files()


def test_a_forgotten_record_is_named_as_such_when_it_is_asked_for(memory: Ralph) -> None:
    kept = memory.feature("auth").remember(made("Built the login form"))
    memory.feature("auth").forget([kept.id])
    with pytest.raises(NotFound, match=r"was forgotten$"):
        memory.get(kept.id[:8])


def test_a_folder_that_is_named_like_a_journal_is_none(memory: Ralph, project: Path) -> None:
    memory.feature("auth").remember(made("Built the login form"))
    (project / ".ralph" / "db" / "memory" / "odd.jsonl").mkdir()
    assert [one.name for one in memory.features()] == ["auth"]
