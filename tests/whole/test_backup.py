"""`ralph backup` and `ralph restore`: everything of a person, from one machine to another."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commanding import Line
from remembering import open_toy

from ralph.config import home_folder
from ralph.memory.project import Project, project_or_folder
from ralph.memory.ralph import open_ralph
from ralph.plan import learnings
from ralph.plan.edit import create_feature, create_task
from ralph.plan.store import Plan
from ralph.records.conversation import Summary, summary_id

PROJECTS = ("shop", "web")


@pytest.fixture
def ralph(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    return Line(capsys, monkeypatch)


@pytest.fixture
def machine(
    ralph: Line, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """Go to another machine: a Ralph's home of its own, and a folder for projects."""

    def go(name: str) -> Path:
        folder = tmp_path / name
        for other in tmp_path.glob("*/*/.ralph"):  # another machine's folders are not on this one
            other.rename(other.with_name("elsewhere"))
        folder.mkdir(exist_ok=True)
        monkeypatch.setenv("RALPH_HOME", str(folder / "home"))
        monkeypatch.chdir(folder)
        return folder

    return go


@pytest.fixture
def saved(ralph: Line, machine: Callable[[str], Path]) -> Path:
    """The backup of a machine with two projects."""
    folder = machine("old")
    for name in PROJECTS:
        fill(folder / name)
    ralph.well("backup", "all.zip")
    return folder / "all.zip"


def fill(root: Path) -> None:
    """One thing of each kind."""
    name = root.name
    root.mkdir(exist_ok=True)
    Project(root).init()
    plan = Plan(root)
    create_feature(plan, "login", {"description": f"Signing in to {name}."})
    create_task(plan, "login", f"Build the {name} form")
    learnings.add(plan, "login", f"The {name} form is called login.", source="human")
    with open_toy(root) as opened:
        opened.remember(f"The {name} form needs a token.")
        opened.remember(f"My {name} password is long.", private=True)
        done = {"summary": f"Built the {name} form.", "outcome": "success"}
        opened.feature("login").remember({"feature": "login", **done})
        knowledge = opened.knowledge
        knowledge.capture_failure_solution(
            project=opened.project.id,
            failure_description=f"The {name} database was down.",
            solution_steps=f"Start the {name} database.",
            success_verified=True,
        )
        knowledge.checkpoint()
        pattern = next(iter(knowledge.living().patterns))
        knowledge.report_outcome(pattern, worked=True, note=f"It held in {name}.")
        memory = opened.conversations
        talk = memory.start(f"The {name} talk")
        asked = memory.exchange(talk, user=f"How does {name} work?", assistant="It does.")
        summary = Summary(of="conversation", target=talk, text=f"About {name}.", by="paid")
        memory.say(summary, id=summary_id(talk, 1))
        memory.tag(talk, add=[f"tag-{name}"])
        memory.rate(asked.id, 1)


def content(folder: Path) -> dict[str, Any]:
    """Everything that memory has of the projects in a folder."""
    found: dict[str, Any] = {}
    for name in PROJECTS:
        with open_ralph(folder / name) as opened:
            memory = opened.conversations
            found[name] = {
                "notes": [one.id for one in opened.notes.records()],
                "records": [one.id for one in opened.feature("login").records()],
                "said": [(one.id, one.body) for one in memory.stream.records()],
                "tags": [one.tags for one in memory.list()],
                "summaries": [one.summary for one in memory.list()],
                "ratings": memory.stream.history.ratings,
                "learned": [one.text for one in Plan(folder / name).feature("login").learnings],
                "tasks": [one.title for one in Plan(folder / name).load().tasks],
                "knowledge": [(one.id, one.body) for one in opened.knowledge.of_project()],
                "outcomes": opened.knowledge.living().worked,
            }
    return found


def test_another_machine_has_everything_after_a_restore(
    ralph: Line, saved: Path, machine: Callable[[str], Path]
) -> None:
    before = content(saved.parent)
    new = machine("new")

    ran = ralph.well("restore", saved, "--into", new, "--json")

    assert content(new) == before
    assert ran.json["known"] == 0
    assert ran.json["left_out"] == []
    assert sorted(map(Path, ran.json["projects"])) == [new / name for name in PROJECTS]
    for name in PROJECTS:
        found = ralph.well("search", f"the {name} form", "--project", new / name).out
        assert f"Built the {name} form." in found


def test_restoring_twice_changes_nothing(
    ralph: Line, saved: Path, machine: Callable[[str], Path]
) -> None:
    new = machine("new")
    first = ralph.well("restore", saved, "--into", new, "--json").json
    files = {file: file.read_bytes() for file in new.rglob("*.jsonl")}

    again = ralph.well("restore", saved, "--json").json

    assert (again["added"], again["known"]) == (0, first["added"])
    assert {file: file.read_bytes() for file in new.rglob("*.jsonl")} == files


def test_a_backup_is_for_its_owners_eyes_and_replaces_the_older_one(
    ralph: Line, saved: Path
) -> None:
    saved.write_text("an older one")
    saved.chmod(0o644)

    ralph.well("backup", saved)

    assert zipfile.is_zipfile(saved)
    assert [file.name for file in saved.parent.glob("all*")] == ["all.zip"]
    if os.name == "posix":
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600


def test_what_is_newer_here_stays_and_what_is_forgotten_stays_so(
    ralph: Line, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = saved.parent / "shop"
    monkeypatch.chdir(shop)
    [gone] = [one["id"] for one in ralph.well("recent", "--kind", "iteration", "--json").json]
    ralph.well("forget", gone, "--yes")
    ralph.record("login", {"summary": "Something newer.", "outcome": "success"})
    ralph.well("feature", "update", "login", "--description", "Newer words.")
    ralph.well("learning", "add", "Newer learning about passwords.", "--feature", "login")
    ralph.well("task", "update", "1", "--status", "done")

    ran = ralph.well("restore", saved, "--json").json

    assert (ran["added"], ran["forgotten"]) == (0, 1)
    listed = ralph.well("recent", "--kind", "iteration", "--json").json
    assert [one["record"]["summary"] for one in listed] == ["Something newer."]
    plan = Plan(shop).load()
    assert plan.features[0].description == "Newer words."
    assert len(plan.features[0].learnings) == 2
    assert plan.tasks[0].status == "done"


def test_a_learning_that_is_missing_comes_back_into_a_plan_that_went_on(
    ralph: Line, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = saved.parent / "shop"
    plan = shop / ".ralph/db/features.yaml"
    plan.write_text("features:\n- name: login\n  description: Newer words.\n", encoding="utf-8")

    ralph.well("restore", saved)

    feature = Plan(shop).feature("login")
    assert feature.description == "Newer words."
    assert [one.text for one in feature.learnings] == ["The shop form is called login."]


def test_a_project_that_is_not_here_is_named_and_the_rest_is_restored(
    ralph: Line, saved: Path, machine: Callable[[str], Path]
) -> None:
    new = machine("new")

    ran = ralph("restore", saved)

    assert ran.code == 1
    assert ran.err.count("this project is not on this machine") == 2
    assert not (new / "shop").exists()
    assert len(list((new / "home/journal/conversations").glob("*.jsonl"))) == 2


def test_a_project_in_its_old_folder_is_restored_there_with_a_new_home(
    ralph: Line, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(saved.parent)
    monkeypatch.setenv("RALPH_HOME", str(tmp_path / "home2"))
    web, (journal,) = saved.parent / "web", (saved.parent / "shop").rglob("login.jsonl")
    journal.unlink()
    (web / ".ralph").rename(web / "gone")

    ran = ralph("restore", saved, "--json")

    assert [Path(one).name for one in ran.json["projects"]] == ["shop"]
    assert ran.err.count("this project is not on this machine") == ran.code == 1
    (web / "gone").rename(web / ".ralph")
    assert ralph.well("restore", saved, "--json").json["left_out"] == []
    assert content(saved.parent) == before


def test_another_project_in_the_folder_is_left_alone(
    ralph: Line, saved: Path, machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    new = machine("new")
    (new / "shop").mkdir()
    monkeypatch.chdir(new / "shop")
    ralph.well("init")
    before = (new / "shop/.ralph/db/metadata.yaml").read_text()

    ran = ralph("restore", saved, "--into", new)

    assert "another project is in its folder" in ran.err
    assert (new / "shop/.ralph/db/metadata.yaml").read_text() == before
    assert not list((new / "shop").rglob("*.jsonl"))


def test_what_was_said_before_init_is_found_in_its_project_elsewhere(
    ralph: Line, machine: Callable[[str], Path]
) -> None:
    old = machine("old")
    (old / "shop").mkdir()
    with open_ralph(project=project_or_folder(old / "shop", home=home_folder())) as opened:
        memory = opened.conversations
        memory.exchange(memory.start("Early"), user="What is a shop?", assistant="A place.")
    fill(old / "shop")
    ralph.well("backup", "all.zip")
    new = machine("new")

    ralph.well("restore", old / "all.zip", "--into", new)
    again = ralph.well("restore", old / "all.zip", "--json").json

    with open_ralph(new / "shop") as opened:
        titles = [one.conversation.title for one in opened.conversations.list()]
    assert sorted(titles) == ["Early", "The shop talk"]
    assert again["added"] == 0


# An archive is bad input


def rewritten(saved: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The archive with other members, as a ZIP file that is sound in itself."""
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    bad = saved.with_name("bad.zip")
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return bad


def manifest(members: dict[str, bytes]) -> Any:
    return json.loads(members["manifest.json"])


def rename(members: dict[str, bytes], **fields: str) -> None:
    """Give the first journal of a feature another name, in the manifest too."""
    told = manifest(members)
    one = next(one for one in told["members"] if one["memory"] == "features")
    members[f"projects/{fields.get('project', one['project'])}/features/{fields['file']}"] = (
        members.pop(f"projects/{one['project']}/features/login.jsonl")
    )
    del fields["file"]
    one.update(fields)
    members["manifest.json"] = json.dumps(told).encode()


def unlisted(members: dict[str, bytes]) -> None:
    members["../../evil.jsonl"] = b""


def escaping(members: dict[str, bytes]) -> None:
    rename(members, file="../../evil.jsonl", name="../../evil")


def unknown_project(members: dict[str, bytes]) -> None:
    rename(members, file="login.jsonl", project="../..")


def evil_project(members: dict[str, bytes]) -> None:
    told = manifest(members)
    told["projects"]["../../x-00000000"] = {"id": "0" * 8, "root": "/", "ids": []}
    members["manifest.json"] = json.dumps(told).encode()


def changed(members: dict[str, bytes]) -> None:
    name = next(name for name in members if name.endswith("login.jsonl"))
    members[name] = members[name].replace(b"Built", b"Broke")


def changed_with_its_hash(members: dict[str, bytes]) -> None:
    """The manifest fits; the record no longer has the content that its digest says."""
    changed(members)
    told = manifest(members)
    for one in told["members"]:
        if one["name"] == "login":
            data = members[f"projects/{one['project']}/features/login.jsonl"]
            one["sha256"] = hashlib.sha256(data).hexdigest()
    members["manifest.json"] = json.dumps(told).encode()


def missing(members: dict[str, bytes]) -> None:
    members.pop(next(name for name in members if name.endswith("login.jsonl")))


def no_manifest(members: dict[str, bytes]) -> None:
    members.pop("manifest.json")


def not_a_manifest(members: dict[str, bytes]) -> None:
    members["manifest.json"] = b"[" * 100_000


def newer(members: dict[str, bytes]) -> None:
    members["manifest.json"] = json.dumps({**manifest(members), "version": 2}).encode()


@pytest.mark.parametrize(
    "change",
    [unlisted, escaping, unknown_project, evil_project, changed, changed_with_its_hash, missing,
     no_manifest, not_a_manifest, newer],
)  # fmt: skip
def test_an_archive_that_is_not_as_it_was_written_is_refused_whole(
    ralph: Line,
    saved: Path,
    machine: Callable[[str], Path],
    change: Callable[[dict[str, bytes]], None],
) -> None:
    new = machine("new")
    bad = rewritten(saved, change)

    ran = ralph("restore", bad, "--into", new)

    assert ran.code == 1
    assert ran.complaint.startswith(f"ralph: {bad} is not a Ralph backup, or it is damaged (")
    assert ran.complaint.endswith("Nothing was restored.")
    assert not list(new.rglob("*.jsonl"))
    assert not (new / "shop").exists()


def test_a_file_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(
    ralph: Line, saved: Path, machine: Callable[[str], Path]
) -> None:
    new = machine("new")

    def swell(members: dict[str, bytes]) -> None:
        told = manifest(members)
        one = next(one for one in told["members"] if one["memory"] == "plan")
        members[f"projects/{one['project']}/plan/{one['name']}.yaml"] = b"#" * (17 << 20)
        one["bytes"] = 17 << 20
        members["manifest.json"] = json.dumps(told).encode()

    ran = ralph("restore", rewritten(saved, swell), "--into", new)

    assert "too large" in ran.complaint
    assert not (new / "shop").exists()


@pytest.mark.parametrize("unit", [b"\n", b"a"])
def test_a_journal_that_unpacks_to_much_is_read_in_pieces(
    ralph: Line, saved: Path, machine: Callable[[str], Path], unit: bytes
) -> None:
    """A small file must not fill the memory before it is refused."""
    size = 32 << 20
    new, bomb = machine("new"), saved.with_name("bomb.zip")
    with zipfile.ZipFile(saved) as archive, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as out:
        told = json.loads(archive.read("manifest.json"))
        member = next(one for one in told["members"] if one["memory"] == "conversations")
        file = f"conversations/{member['name']}.jsonl"
        for one in archive.infolist():
            if one.filename not in ("manifest.json", file):
                out.writestr(one, archive.read(one))
        digest = hashlib.sha256()
        with out.open(file, "w") as swollen:
            for _ in range(size >> 20):
                swollen.write(unit * (1 << 20))
                digest.update(unit * (1 << 20))
        member |= {"bytes": size, "sha256": digest.hexdigest()}
        out.writestr("manifest.json", json.dumps(told))

    tracemalloc.start()
    try:
        ran = ralph("restore", bomb, "--into", new)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert "line 1 of" in ran.complaint
    assert peak < size // 2


def test_a_torn_or_foreign_file_is_refused(
    ralph: Line, saved: Path, machine: Callable[[str], Path]
) -> None:
    new = machine("new")
    whole = saved.read_bytes()
    at = whole.index(b"login.jsonl") + 40
    files = {
        "torn.zip": whole[: len(whole) // 2],
        "bits.zip": whole[:at] + struct.pack("<Q", 0xFFFF) + whole[at + 8 :],
        "text.zip": b"not a backup",
        "empty.zip": b"",
    }
    for name, data in files.items():
        (new / name).write_bytes(data)

        ran = ralph("restore", name, "--into", new)

        assert ran.code == 1
        assert "Nothing was restored." in ran.complaint
    told = "ralph: text.zip is not a Ralph backup, or it is damaged (not a zip file)."
    assert ralph("restore", "text.zip").complaint == f"{told} Nothing was restored."
    assert not list(new.rglob("*.jsonl"))


def test_secrets_in_an_archive_are_not_restored(
    ralph: Line, saved: Path, machine: Callable[[str], Path]
) -> None:
    from ralph.journal.line import read_line, write_record

    key = b"ghp_0123456789abcdefABCDEF0123456789abcd"
    new = machine("new")

    def plant(members: dict[str, bytes]) -> None:
        told = manifest(members)
        for one in told["members"]:
            if one["name"] == "login":
                name = f"projects/{one['project']}/features/login.jsonl"
                line = members[name].replace(b"Built", b"Key " + key)
                record, _ = read_line(line.strip())
                data = members[name] = write_record(record)  # type: ignore[arg-type]
                one |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        members["manifest.json"] = json.dumps(told).encode()

    ralph.well("restore", rewritten(saved, plant), "--into", new)

    assert len(list(new.rglob("login.jsonl"))) == 2
    assert not [file for file in new.rglob("*") if file.is_file() and key in file.read_bytes()]


def test_a_journal_that_is_partly_damaged_is_saved_without_the_damage(
    ralph: Line, saved: Path
) -> None:
    journal = saved.parent / "shop/.ralph/db/memory/login.jsonl"
    with journal.open("ab") as file:
        file.write(b"not an entry\n")

    ran = ralph("backup", saved)

    assert ran.code == 1
    assert "login.jsonl:2 is not an entry" in ran.err
    assert ralph.well("restore", saved, "--json").json["added"] == 0
