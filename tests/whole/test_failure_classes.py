"""The failure classes, each with a test that carries its number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from remembering import ToyEmbedder, index_files, made, open_toy, shown, summaries, topical

from ralph.errors import BadInput, BadRecord
from ralph.index import quantized
from ralph.index import sync as sync_module
from ralph.memory.ralph import Ralph
from ralph.records.iteration import ErrorSeen, FileTouched

QUESTION = "login form validation"


def journal(root: Path) -> Path:
    return root / ".ralph" / "db" / "memory" / "auth.jsonl"


def test_f6_an_iteration_of_another_feature_is_refused(memory: Ralph) -> None:
    with pytest.raises(BadRecord, match="of feature 'billing', not 'auth'"):
        memory.feature("auth").remember(made("an invoice", feature="billing"))
    assert memory.store.journals.names() == []
    kept = memory.feature("auth").remember(made("a login", feature="auth"))
    assert kept.record.feature == "auth"


def test_f7_the_text_to_embed_holds_the_essentials_and_at_most_4000_characters(
    memory: Ralph, toy: ToyEmbedder
) -> None:
    memory.feature("auth").remember(
        {
            "task_title": "the title",
            "summary": "the summary",
            "errors": [{"message": "the error"}],
            "decisions": [{"description": "the decision", "rationale": "the reason"}],
        }
    )
    memory.feature("auth").remember(
        made(
            "s" * 9000,
            task_title="t" * 9000,
            errors=tuple(ErrorSeen(f"{n}" + "e" * 900) for n in range(50)),
        )
    )
    thin, *passages = toy.embedded
    for part in ("the title", "the summary", "the error", "the decision", "the reason"):
        assert part in thin
    assert all(len(one) <= 4000 and one.startswith("ttt") for one in passages)
    assert any("sss" in one for one in passages)
    assert any("0eee" in one for one in passages)


def test_f8_a_query_that_cannot_be_meant_gets_help(memory: Ralph) -> None:
    with pytest.raises(BadInput) as caught:
        memory.feature("auth").search("x")
    assert "too short" in str(caught.value)
    assert "for example" in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../outside.py",
        "src/../../outside.py",
        "src\\..\\..\\outside.py",
        "C:\\Windows\\system32",
        "C:/Windows/system32",
        "\\\\server\\share",
        "nul\0byte.py",
        "",
        ".",
    ],
)
def test_f9_a_path_outside_the_project_is_not_kept(memory: Ralph, path: str) -> None:
    kept = memory.feature("auth").remember(
        made(
            "work",
            errors=(ErrorSeen("it broke", "test", path, 3),),
            files_touched=(FileTouched(path, "modified"), FileTouched("src/a.py", "read")),
        )
    )
    assert [file.path for file in kept.record.files_touched] == ["src/a.py"]
    assert kept.record.errors[0].file_path is None


def test_f9_a_path_inside_the_project_is_kept_once_relative_and_with_the_strongest_action(
    memory: Ralph, project: Path
) -> None:
    touched = (
        FileTouched(str(project / "src" / "a.py"), "read"),
        FileTouched("src/a.py", "modified"),
        FileTouched("./src//a.py", "read"),
        FileTouched("src\\b.py", "created"),
        FileTouched("src/..hidden..py", "read"),
    )
    kept = memory.feature("auth").remember(made("work", files_touched=touched))
    assert [(file.path, file.action) for file in kept.record.files_touched] == [
        ("src/a.py", "modified"),
        ("src/b.py", "created"),
        ("src/..hidden..py", "read"),
    ]


def test_f14_f24_a_collection_without_its_journal_is_listed_and_removed(
    memory: Ralph, project: Path
) -> None:
    memory.feature("auth").remember(made(QUESTION))
    memory.feature("billing").remember(made("invoice totals"))
    journal(project).unlink()
    assert [one.stream for one in memory.orphans()] == ["auth"]
    assert memory.search(QUESTION) == []
    memory.prune()
    assert memory.orphans() == []
    assert len(memory.search("invoice totals")) == 1


def test_f16_nothing_unchanged_is_embedded_again(
    memory: Ralph, project: Path, toy: ToyEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth = memory.feature("auth")
    auth.remember_all(topical(20))
    auth.remember_all(topical(20))
    auth.search(QUESTION)
    assert len(toy.embedded) == 20
    # The whole journal is written anew, as a merge or a checkout does it.
    journal(project).write_bytes(journal(project).read_bytes() * 2)
    auth.search(QUESTION)
    assert len(toy.embedded) == 20
    # The words are cut in another way: all records are indexed again, none embedded.
    monkeypatch.setattr(sync_module, "TOKENISER_VERSION", "another")
    auth.search(QUESTION)
    assert len(toy.embedded) == 20
    auth.remember(made("one more", session_id="more"))
    assert len(toy.embedded) == 21


def test_f18_two_projects_with_the_same_feature_share_nothing(tmp_path: Path) -> None:
    with open_toy(tmp_path / "one") as one, open_toy(tmp_path / "two") as two:
        one.feature("auth").remember(made("login form validation of one", session_id="s"))
        two.feature("auth").remember(made("login form validation of two", session_id="s"))
        assert one.feature("auth").target().name != two.feature("auth").target().name
        assert summaries(one.search(QUESTION)) == ["login form validation of one"]
        assert summaries(two.search(QUESTION)) == ["login form validation of two"]


def test_f18_even_in_one_index_file_the_collections_of_two_projects_stay_apart(
    tmp_path: Path,
) -> None:
    with open_toy(tmp_path / "one") as one, open_toy(tmp_path / "two") as two:
        two.store.index = one.store.index  # as on a server they would share
        one.feature("auth").remember(made("login form validation of one", session_id="s"))
        two.feature("auth").remember(made("login form validation of two", session_id="s"))
        assert summaries(one.search(QUESTION)) == ["login form validation of one"]
        assert summaries(two.search(QUESTION)) == ["login form validation of two"]
        assert len(one.store.index.collections()) == 2


def test_f19_another_embedding_model_means_a_rebuild_never_a_mix_and_never_a_crash(
    memory: Ralph, project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory.feature("auth").remember_all(topical(20))
    for identity, dims in (("toy:2", 64), ("toy:2", 16), ("toy:3", 128), ("toy:1", 64)):
        with open_toy(project, ToyEmbedder(identity, dims)) as changed:
            found = changed.feature("auth").search(QUESTION)
            assert len(found) >= 2
            assert found.notes == ()
            (only,) = changed.store.index.collections()
            assert (only.manifest.embedder, only.manifest.dims) == (identity, dims)
            with changed.store.index.store.state() as view:
                blobs = list(view.content(only).vectors.values())
            steps, scales = quantized(ToyEmbedder(identity, dims).embed_passages(texts()))
            assert set(blobs) == {one.tobytes() for one in steps * scales[:, None]}
    assert caplog.records == []


def texts() -> list[str]:
    return [f"{one.task_title}\n{one.summary}" for one in topical(20)]


def test_f22_losing_the_index_loses_nothing(memory: Ralph, project: Path) -> None:
    auth = memory.feature("auth")
    auth.remember_all(topical(50))
    questions = [QUESTION, "invoice totals", "websocket", "accents in search suggestions"]
    before = [shown(auth.search(question)) for question in questions]
    memory.close()
    for file in index_files(project):
        file.unlink()
    with open_toy(project) as again:
        assert [shown(again.feature("auth").search(q)) for q in questions] == before


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"v": 1, "kind": "iteration"', "is not an entry"),
        ("a person wrote this", "is not an entry"),
        ('{"v": 99, "kind": "iteration", "id": "x", "body": {}}', "newer Ralph"),
        ('{"v": 1, "kind": "iteration", "id": "x", "number": "one"}', "does not fit"),
        (
            '{"v": 1, "kind": "iteration", "id": "x", "number": 9, "at": "2026-01-01T00:00:00Z", '
            '"body": {"feature": "auth", "summary": 7}}',
            "not a readable iteration",
        ),
        (
            '{"v": 1, "kind": "iteration", "id": "x", "number": 9, "at": "2026-01-01T00:00:00Z", '
            '"body": {"feature": "auth", "summary": "\\ud800 half"}}',
            "is not an entry",
        ),
    ],
)
def test_f36_a_malformed_line_is_a_complaint_with_its_place_and_the_rest_is_read(
    memory: Ralph, project: Path, line: str, says: str
) -> None:
    auth = memory.feature("auth")
    auth.remember(made("login form validation before", session_id="1"))
    with journal(project).open("a") as file:
        file.write(line + "\n")
    auth.remember(made("login form validation after", session_id="2"))
    count, complaints = auth.verify()
    assert count == 2
    assert [(c.file, c.line) for c in complaints] == [(".ralph/db/memory/auth.jsonl", 2)]
    assert says in complaints[0].what
    assert len(auth.search(QUESTION)) == 2
    assert len(auth.recent()) == 2
    assert line in journal(project).read_text()  # stepped over, never deleted


def test_f36_a_record_changed_by_hand_is_read_and_complained_about(
    memory: Ralph, project: Path
) -> None:
    auth = memory.feature("auth")
    auth.remember(made("login form validation", session_id="1"))
    entry = json.loads(journal(project).read_text())
    entry["body"]["summary"] = "login form validation, changed"
    journal(project).write_text(json.dumps(entry) + "\n")
    assert summaries(auth.search(QUESTION)) == ["login form validation, changed"]
    count, (complaint,) = auth.verify()
    assert count == 1
    assert "does not match its digest" in complaint.what
