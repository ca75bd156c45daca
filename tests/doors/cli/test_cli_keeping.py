"""`journal verify`, `forget`, `export`, `import`: nothing lost, nothing left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commanding import COOKIE, LOGIN, Line, Ran
from remembering import files_holding
from terminal import at_terminal

from ralph import open_ralph
from ralph.records.conversation import Conversation, Exchange

pytestmark = pytest.mark.usefixtures("words")

GIT = "Git history keeps what was committed before."


def journal(project: Path, feature: str = "auth") -> Path:
    return project / ".ralph" / "db" / "memory" / f"{feature}.jsonl"


def recent(ralph: Line) -> list[str]:
    return [hit["id"] for hit in ralph.well("recent", "--json").json]


def test_without_a_project_an_id_can_be_forgotten(
    ralph: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    note = ralph.well("remember", "My test user is bob", "--json").json["id"]
    assert recent(ralph) == [note]
    ralph.well("forget", note[:8])
    assert recent(ralph) == []


def test_a_sound_journal_is_told_so(ralph: Line) -> None:
    ralph.record("auth", LOGIN, COOKIE)

    ran = ralph.well("journal", "verify", "--json")

    assert ran.json == {"ok": True, "records": 2, "complaints": []}
    assert ran.err == ""
    assert ralph.well("journal", "verify").out == "2 records can be read in 1 journal.\n"


def test_complaints_end_with_1_and_name_their_place(ralph: Line, project: Path) -> None:
    ralph.record("auth", LOGIN)
    ralph.record("web", COOKIE)
    with journal(project).open("ab") as file:
        file.write(b"not an entry\n")

    ran = ralph("journal", "verify", "--json")

    assert ran.code == 1
    assert ran.complaint.startswith("ralph: 1 problem")
    assert (ran.json["ok"], ran.json["records"]) == (False, 2)
    [complaint] = ran.json["complaints"]
    assert list(complaint) == ["file", "line", "what"]
    assert (complaint["file"], complaint["line"]) == (".ralph/db/memory/auth.jsonl", 2)
    said = ralph("journal", "verify")
    assert said.code == 1
    assert said.out.startswith(".ralph/db/memory/auth.jsonl:2 is not an entry")
    assert ralph.well("journal", "verify", "--feature", "web", "--json").json["ok"]


def test_ids_are_forgotten_without_asking(ralph: Line, project: Path) -> None:
    ids = ralph.record("auth", LOGIN, COOKIE)

    ran = ralph.well("forget", ids[0][:8], "--reason", "wrong")

    assert ran.out.splitlines() == [
        "To be forgotten: 1 record of auth",
        f"  {ids[0][:8]}  iteration of auth  Add the login form",
        f"Forgot 1 record, in journal and index. {GIT}",
    ]
    assert recent(ralph) == ids[1:]
    assert files_holding(project / ".ralph", "empty passwords") == []
    assert '"reason":"wrong"' in journal(project).read_text(encoding="utf-8")
    again = ralph("record", "--feature", "auth", "-", stdin=json.dumps(LOGIN))
    assert again.code == 1
    assert "was forgotten and cannot be added again" in again.complaint


def test_forgetting_is_told_as_json(ralph: Line) -> None:
    ids = ralph.record("auth", LOGIN, COOKIE)

    ran = ralph.well("forget", *ids, "--json")

    assert ran.json == {
        "forgotten": 2,
        "records": [{"id": record_id, "feature": "auth"} for record_id in ids],
        "copies": [],
        "remains": [],
    }
    assert ran.complaint == f"ralph: {GIT}"


def test_an_id_that_is_not_there_forgets_nothing(ralph: Line) -> None:
    ids = ralph.record("auth", LOGIN)

    ran = ralph("forget", ids[0], "ffffffff-0000")

    assert ran.code == 1
    assert ran.complaint == "ralph: there is no record ffffffff-0000. Nothing was forgotten."
    assert recent(ralph) == ids


BULK = [
    ("--project",),
    ("--all",),
    ("--feature", "auth"),
    ("--before", "2026-02-08"),
    ("--match", "PASSWORDS"),
    ("--match", "passwords", "--feature", "auth", "--before", "2026-12-01", "--reason", "old"),
]


@pytest.mark.parametrize("words", BULK)
def test_many_are_not_forgotten_without_a_yes(ralph: Line, words: tuple[str, ...]) -> None:
    ids = ralph.record("auth", LOGIN)

    ran = ralph("forget", *words)

    assert ran.code == 1
    assert ran.complaint.startswith("ralph: 1 record ")
    assert ran.complaint.endswith(
        "would be forgotten, and this is not a terminal. Add --yes to do it. Nothing was forgotten."
    )
    assert ("everything of " in ran.complaint) == (words in (("--all",), ("--project",)))
    assert recent(ralph) == ids


@pytest.mark.parametrize("words", BULK)
def test_yes_forgets_many(ralph: Line, words: tuple[str, ...]) -> None:
    ralph.record("auth", LOGIN)
    [other] = ralph.record("web", COOKIE)

    ran = ralph.well("forget", *words, "--yes", "--json")

    everything = words in (("--project",), ("--all",))
    assert ran.json["forgotten"] == (2 if everything else 1)
    assert recent(ralph) == ([] if everything else [other])


@pytest.mark.parametrize(
    "line", ["forget --project --yes", "forget --yes --project", "forget --project --json --yes"]
)
def test_project_without_a_folder_means_everything_of_it(ralph: Line, line: str) -> None:
    ralph.record("auth", LOGIN, COOKIE)

    ralph.well(*line.split())

    assert recent(ralph) == []


@pytest.mark.parametrize(
    "line",
    [
        "forget --project {} --project --yes",
        "forget --project --yes --project={}",
        "--project {} forget --yes --project",
    ],
)
def test_project_with_a_folder_is_the_project(
    ralph: Line, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    ralph.record("auth", LOGIN)
    ralph.well("init", tmp_path / "other")
    monkeypatch.chdir(tmp_path / "other")
    kept = ralph.record("auth", LOGIN)

    ralph.well(*(word.format(project) for word in line.split()))

    assert recent(ralph) == kept
    assert ralph.well("recent", "--json", "--project", project).json == []


def test_a_folder_alone_is_nothing_to_forget(ralph: Line, project: Path) -> None:
    assert ralph("forget", "--project", project).code == 2
    assert ralph("forget", "--project", project, "--yes").code == 2


def test_a_selection_that_fits_nothing_says_so(ralph: Line) -> None:
    ralph.record("auth", LOGIN)

    ran = ralph.well("forget", "--match", "zeppelin", "--yes")

    assert ran.out == "No record matches; nothing was forgotten.\n"
    assert ralph.well("forget", "--feature", "none", "--json").json["forgotten"] == 0


def test_a_date_that_is_none_is_refused(ralph: Line) -> None:
    ran = ralph("forget", "--before", "noon", "--yes")

    assert ran.code == 1
    assert "before 'noon' is not a day" in ran.complaint


def test_many_are_shown_in_part(ralph: Line) -> None:
    ralph.record("auth", *({"summary": f"number {n}"} for n in range(14)))

    lines = ralph.well("forget", "--project", "--yes").out.splitlines()

    assert lines[0] == "To be forgotten: 14 records of auth"
    assert lines[11:] == ["  and 4 more", f"Forgot 14 records, in journal and index. {GIT}"]


def test_what_a_merge_brought_back_can_be_forgotten_again(ralph: Line, project: Path) -> None:
    [record_id] = ralph.record("auth", LOGIN)
    before = journal(project).read_bytes()
    ralph.well("forget", record_id)
    journal(project).write_bytes(before + journal(project).read_bytes())
    assert "forget it again" in ralph("journal", "verify").out

    ralph.well("forget", record_id)

    assert ralph.well("journal", "verify", "--json").json["ok"]
    assert files_holding(project / ".ralph", "empty passwords") == []


@pytest.mark.parametrize(("typed", "code", "left"), [("yes", 0, 0), ("no", 1, 1), ("", 1, 1)])
def test_on_a_terminal_many_take_a_typed_yes(
    ralph: Line, project: Path, typed: str, code: int, left: int
) -> None:
    if sys.platform == "win32":
        pytest.skip("there is no pseudo-terminal")
    import pty

    ralph.record("auth", LOGIN)
    ours, theirs = pty.openpty()
    os.write(ours, f"{typed}\n".encode())
    ran = subprocess.run(
        [sys.executable, "-m", "ralph", "forget", "--feature", "auth"],
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(ours)
    os.close(theirs)

    assert ran.returncode == code
    assert "Type yes to forget 1 record for good: " in ran.stderr
    assert len(recent(ralph)) == left


def test_an_export_comes_back_in_a_fresh_clone(
    ralph: Line, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ralph.record("auth", LOGIN, COOKIE)
    other = ralph.record("web/ünicode", COOKIE)
    ralph.well("forget", ids[0])
    out = ralph.well("export", tmp_path / "all.jsonl", "--json")
    assert out.json == {"file": str(tmp_path / "all.jsonl"), "entries": 3}
    clone = tmp_path / "clone"
    shutil.copytree(project / ".ralph" / "db", clone / ".ralph" / "db")
    for file in (clone / ".ralph" / "db" / "memory").glob("*.jsonl"):
        file.unlink()
    monkeypatch.chdir(clone)

    first = ralph.well("import", tmp_path / "all.jsonl", "--json")
    again = ralph.well("import", "-", stdin=(tmp_path / "all.jsonl").read_bytes())

    assert first.json == {"added": 2, "known": 0, "forgotten": 0, "complaints": []}
    assert again.out == "Imported 0 records, 2 already known.\n"
    assert set(recent(ralph)) == {ids[1], *other}
    [hit] = ralph.well("search", "cookie", "--json").json
    assert {hit["id"], *hit["like"]} == {ids[1], *other}


def test_what_was_forgotten_here_does_not_come_back_by_an_import(ralph: Line) -> None:
    ids = ralph.record("auth", LOGIN, COOKIE)
    before = ralph.well("export", "-").out
    ralph.well("forget", ids[0])

    ran = ralph.well("import", "-", "--json", stdin=before)

    assert ran.json == {"added": 0, "known": 1, "forgotten": 1, "complaints": []}
    assert recent(ralph) == ids[1:]


def test_an_export_can_be_of_one_feature_and_to_stdout(ralph: Line) -> None:
    ralph.record("auth", LOGIN)
    ralph.record("web", COOKIE)

    [line] = ralph.well("export", "-", "--feature", "web").out.splitlines()

    assert json.loads(line)["stream"] == "web"


def import_with_damage(ralph: Line, *words: str) -> Ran:
    ralph.record("auth", LOGIN)
    good = ralph.well("export", "-").out
    ralph.well("forget", "--project", "--yes")
    return ralph("import", "-", *words, stdin=f"what?\n{good}{{}}\n")


def test_an_import_tells_of_every_line_it_cannot_read(ralph: Line) -> None:
    ran = import_with_damage(ralph, "--json")

    assert ran.code == 1
    assert [one["line"] for one in ran.json["complaints"]] == [1, 3]
    assert ran.json["forgotten"] == 1
    assert [line.split()[1] for line in ran.err.splitlines()] == ["<stdin>:1:", "<stdin>:3:"]


def test_an_import_says_what_stayed_forgotten(ralph: Line) -> None:
    assert import_with_damage(ralph).out == "Imported 0 records, 1 stay forgotten.\n"


def test_a_secret_in_an_import_reaches_no_disk(ralph: Line, project: Path) -> None:
    ralph.well("record", "--feature", "auth", "-", stdin=json.dumps(LOGIN))
    token = "ghp_" + "a1B2c3D4" * 4 + "Zz9y"
    export = ralph.well("export", "-").out.replace(str(LOGIN["summary"]), f"Signed in with {token}")
    (project / ".ralph" / "db" / "memory" / "auth.jsonl").unlink()
    ralph.well("import", "-", stdin=export)
    assert files_holding(project, token.encode()) == []
    assert "[redacted:github-token]" in ralph.well("recent", "--json").out


@pytest.mark.parametrize(("typed", "code", "left"), [("yes", 0, 0), ("no", 1, 2)])
def test_on_a_terminal_a_whole_conversation_takes_a_typed_yes(
    ralph: Line, project: Path, typed: str, code: int, left: int
) -> None:
    if sys.platform == "win32":
        pytest.skip("there is no pseudo-terminal")
    said(project)

    with at_terminal(["forget", "e935ff77"], cwd=project) as (process, screen):
        screen.until("Type yes to forget 3 records for good: ")
        screen.type(f"{typed}\n")
        screen.until("\0", quiet_s=5.0)
        assert process.wait(60) == code

    assert len(recent(ralph)) == left


def test_a_dry_run_lists_what_would_go_and_changes_nothing(ralph: Line, project: Path) -> None:
    said(project)

    ran = ralph.well("forget", "e935ff77", "--dry-run")

    assert ran.out.startswith("To be forgotten: 3 records of the conversations\n")
    assert "This is a dry run; nothing was forgotten.\n" in ran.out
    found = ralph.well("forget", "e935ff77", "--dry-run", "--json").json
    assert found["forgotten"] == 0
    assert len(found["records"]) == 3
    assert ralph.well("forget", "--all", "--dry-run").out.startswith("To be forgotten: 3 records")
    assert len(recent(ralph)) == 2


def said(project: Path) -> None:
    """A conversation of two exchanges."""
    with open_ralph(project) as opened:
        talk = Conversation(id="e935ff77" * 4, title="Releases", source="claude-code")
        asked = [
            Exchange(id=one, conversation=talk.id, user=f"How does {one} work?")
            for one in ("aaaa0000", "bbbb0000")
        ]
        opened.conversations.add(talk, asked)
