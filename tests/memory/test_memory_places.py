"""Where a project may lie and what may be wrong there: odd paths, clones, no rights, no space."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from journaling import run_child
from remembering import files_holding, made, open_toy, summaries, topical

from ralph import open_ralph
from ralph.errors import BadInput, NotAProject
from ralph.memory.project import Project
from ralph.memory.ralph import Ralph
from ralph.memory.status import status
from ralph.records.iteration import FileTouched

QUESTION = "login form validation"


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", *args], cwd=folder, check=True, capture_output=True, text=True, env=os.environ
    )
    return done.stdout


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# -- odd paths

ODD_NAMES = [
    "with spaces",
    'it\'s "quoted"',
    "100%41 #1 ?mode=ro&x=y",
    "ünïcödé-プロジェクト",
    "back\\slash; rm -rf $HOME `id`",
    "two\nlines",
    "-rf",
    "file:memory",
    ":memory:",
]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows allows few of these names")
@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_project_may_lie_under_any_name(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    root.mkdir()
    with open_toy(root) as memory:
        auth = memory.feature("auth")
        kept = auth.remember(
            made(QUESTION, files_touched=(FileTouched(str(root / "src" / "a.py"), "read"),))
        )
        assert [file.path for file in kept.record.files_touched] == ["src/a.py"]
        assert len(auth.search(QUESTION)) == 1
        auth.forget([kept.id])
        assert auth.search(QUESTION) == []
    assert (root / ".ralph" / "db" / "memory" / "auth.jsonl").is_file()
    assert everything(tmp_path) == {name} | {str(Path(name, p)) for p in everything(root)}


def test_a_relative_path_means_the_same_project_wherever_one_goes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_toy("here") as memory:
        monkeypatch.chdir(tmp_path / "there")
        memory.feature("auth").remember(made(QUESTION))
        assert len(memory.feature("auth").search(QUESTION)) == 1
    assert everything(tmp_path / "there") == set()


# -- finding and making a project


def test_opening_and_asking_create_nothing(tmp_path: Path, home: Path) -> None:
    with open_toy(tmp_path) as memory:
        auth = memory.feature("auth")
        assert auth.search(QUESTION) == []
        assert memory.search(QUESTION) == []
        assert auth.recent() == []
        assert auth.files() == []
        assert auth.failed_attempts() == []
        assert len(auth.iterations()) == 0
        assert auth.verify() == (0, [])
        assert memory.features() == []
        assert auth.forget(["x"]) == []
        assert everything(tmp_path) == set()
        assert not home.exists()
        auth.remember(made(QUESTION))
        assert len(auth.search(QUESTION)) == 1
    made_files = {name for name in everything(tmp_path) if (tmp_path / name).is_file()}
    assert {
        ".ralph/.gitignore",
        ".ralph/db/metadata.yaml",
        ".ralph/db/memory/.gitattributes",
        ".ralph/db/memory/auth.jsonl",
    } <= {name.replace(os.sep, "/") for name in made_files}


def test_a_refused_record_creates_nothing(tmp_path: Path) -> None:
    with open_toy(tmp_path) as memory, pytest.raises(BadInput):
        memory.feature("auth").remember({"summary": ""})
    assert everything(tmp_path) == set()


def test_a_folder_inside_a_project_belongs_to_it(memory: Ralph, project: Path) -> None:
    memory.feature("auth").remember(made(QUESTION))
    deep = project / "src" / "deep"
    deep.mkdir(parents=True)
    with open_toy(deep) as inside:
        assert inside.project.root == project.resolve()
        assert len(inside.feature("auth").search(QUESTION)) == 1


def test_the_current_folder_is_the_default(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    with open_ralph() as memory:
        assert memory.project.root == project.resolve()


def test_where_there_is_no_project_the_error_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotAProject, match="ralph init"):
        open_ralph()


def test_the_home_is_never_taken_for_a_project(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "db" / "memory").mkdir(parents=True)  # as if it were one
    work = home.parent / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    with pytest.raises(NotAProject):
        open_ralph()
    monkeypatch.chdir(home.parent)
    with pytest.raises(NotAProject):
        open_ralph()
    with pytest.raises(NotAProject, match="home"):
        open_ralph(home.parent)
    with open_toy(work) as memory:
        assert memory.project.root == work.resolve()


def test_init_twice_changes_nothing(project: Path) -> None:
    metadata = (project / ".ralph" / "db" / "metadata.yaml").read_bytes()
    assert Project(project).init() == []
    assert (project / ".ralph" / "db" / "metadata.yaml").read_bytes() == metadata


def test_a_lost_metadata_file_is_made_again_before_the_next_record(
    memory: Ralph, project: Path
) -> None:
    memory.feature("auth").remember(made(QUESTION, session_id="1"))
    memory.close()
    metadata = project / ".ralph" / "db" / "metadata.yaml"
    metadata.unlink()
    with open_toy(project) as again:
        auth = again.feature("auth")
        assert len(auth.search(QUESTION)) == 1  # reading needs no id
        assert not metadata.exists()
        auth.remember(made("another one", session_id="2"))
        assert metadata.exists()
        written = again.project.id
        assert written in metadata.read_text()
        assert len(auth.search(QUESTION)) == 1
    with open_toy(project) as later:
        assert later.project.id == written
        assert len(later.feature("auth").recent()) == 2


@pytest.mark.parametrize("text", ["", "created: 2026-01-01\n", "# nothing\n", "\0\0\0\0"])
def test_metadata_without_an_id_gets_one_and_keeps_the_rest(project: Path, text: str) -> None:
    metadata = project / ".ralph" / "db" / "metadata.yaml"
    metadata.write_text(text)
    with open_toy(project) as memory:
        memory.feature("auth").remember(made(QUESTION))
        assert memory.project.id in metadata.read_text()
        assert metadata.read_text().startswith(text)


def test_an_id_that_is_no_id_is_an_error_with_its_place_and_nothing_is_written(
    project: Path,
) -> None:
    metadata = project / ".ralph" / "db" / "metadata.yaml"
    metadata.write_text("project_id: 12345\n")
    with open_toy(project) as memory, pytest.raises(BadInput, match=r"metadata\.yaml"):
        memory.feature("auth").remember(made(QUESTION))
    assert list(project.rglob("*.jsonl")) == []
    assert metadata.read_text() == "project_id: 12345\n"


@pytest.mark.parametrize(
    "line",
    [
        "project_id: 0b2f9d3e-1111-4222-8333-444455556666",
        'project_id: "0b2f9d3e-1111-4222-8333-444455556666"   # ours',
        "created: x\r\nproject_id: '0B2F9D3E-1111-4222-8333-444455556666'\r",
    ],
)
def test_an_id_is_read_however_a_person_wrote_it(project: Path, line: str) -> None:
    (project / ".ralph" / "db" / "metadata.yaml").write_bytes(f"{line}\n".encode())
    assert Project(project).id == "0b2f9d3e-1111-4222-8333-444455556666"


# -- clones, worktrees, branches


@pytest.fixture
def repository(memory: Ralph, project: Path) -> Path:
    """A project in git with three iterations committed."""
    memory.feature("auth").remember_all(topical(3))
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "three")
    return project


def test_git_never_sees_the_index(repository: Path) -> None:
    tracked = git(repository, "ls-files").splitlines()
    assert sorted(tracked) == [
        ".ralph/.gitignore",
        ".ralph/db/.gitattributes",
        ".ralph/db/memory/.gitattributes",
        ".ralph/db/memory/auth.jsonl",
        ".ralph/db/metadata.yaml",
    ]
    assert git(repository, "status", "--porcelain") == ""


def test_a_clone_and_a_worktree_share_the_ids(
    memory: Ralph, repository: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", str(repository), "clone")
    git(repository, "worktree", "add", "-q", "-b", "side", str(tmp_path / "worktree"))
    ids = {hit.id for hit in memory.feature("auth").recent()}
    for place in (tmp_path / "clone", tmp_path / "worktree"):
        with open_toy(place) as there:
            assert there.project.root == place.resolve()
            assert there.project.id == memory.project.id
            assert {hit.id for hit in there.feature("auth").recent()} == ids
            assert len(there.feature("auth").search(QUESTION)) == 1
            again = there.feature("auth").remember_all(topical(3))
            assert {one.id for one in again} == ids
            assert not any(one.fresh for one in again)
            # What is written there is not here: they share ids, not files.
            there.feature("auth").remember(made("only there", session_id=place.name))
    assert memory.feature("auth").search("only there") == []


def test_another_branch_with_more_or_fewer_records_is_followed(
    memory: Ralph, repository: Path
) -> None:
    auth = memory.feature("auth")
    git(repository, "checkout", "-q", "-b", "more")
    auth.remember_all(topical(20, start=3))
    git(repository, "commit", "-qam", "more")
    assert len(auth.search(QUESTION)) == 3
    git(repository, "checkout", "-q", "main")
    assert len(auth.search(QUESTION)) == 1
    assert len(auth.recent(100)) == 3
    git(repository, "checkout", "-q", "more")
    assert len(auth.search(QUESTION)) == 3
    assert len(auth.recent(100)) == 23
    git(repository, "checkout", "-q", "-b", "none", "main")
    git(repository, "rm", "-q", ".ralph/db/memory/auth.jsonl")
    assert auth.search(QUESTION) == []
    assert auth.recent() == []
    git(repository, "commit", "-qm", "none")
    git(repository, "checkout", "-q", "main")
    assert len(auth.search(QUESTION)) == 1


def test_the_same_number_on_two_branches_is_two_records_after_the_merge(
    memory: Ralph, repository: Path
) -> None:
    auth = memory.feature("auth")
    git(repository, "checkout", "-q", "-b", "other")
    auth.remember(made("websocket done on the other branch", session_id="other"))
    git(repository, "commit", "-qam", "other")
    git(repository, "checkout", "-q", "main")
    auth.remember(made("websocket done on the main branch", session_id="main"))
    git(repository, "commit", "-qam", "main")
    git(repository, "merge", "-q", "--no-edit", "other")
    assert [hit.record.iteration_number for hit in auth.recent()] == [4, 4, 3, 2, 1]
    assert sorted(summaries(auth.search("websocket done on branch"))[:2]) == [
        "websocket done on the main branch",
        "websocket done on the other branch",
    ]
    assert auth.verify() == (5, [])
    assert auth.remember(made("next", session_id="next")).record.iteration_number == 5


# -- no rights, no space

OWN_MOUNTS = ("unshare", "--map-root-user", "--mount")


def can_mount() -> bool:
    """Whether a child may have mounts of its own, that vanish with it."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return False
    command = [*OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(
    not can_mount(), reason="no process may have its own mounts here (unshare --mount)"
)

READ_ONLY = """
import json, subprocess, sys
from pathlib import Path
from remembering import open_toy
root, home = sys.argv[1:3]
for place in sys.argv[3:]:
    subprocess.run(["mount", "--bind", place, place], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
with open_toy(root) as memory:
    auth = memory.feature("auth")
    answer = auth.search("login form validation")
    print(json.dumps([hit.record.summary for hit in answer]))
    print(json.dumps(answer.notes))
    print(len(auth.recent()), auth.verify())
    try:
        auth.remember({"summary": "not possible here"})
    except Exception as error:
        print(type(error).__name__, error)
    try:
        auth.forget([answer[0].id])
    except Exception as error:
        print(type(error).__name__, error)
    try:
        print("pruned", memory.prune())
    except Exception as error:
        print(type(error).__name__, error)
"""


@needs_mounts
@pytest.mark.parametrize("with_index", [True, False])
def test_a_project_that_may_only_be_read_is_searched_with_an_index_at_home(
    memory: Ralph, project: Path, home: Path, with_index: bool
) -> None:
    memory.feature("auth").remember_all(topical(20))
    if not with_index:
        memory.store.index.delete()
    memory.close()
    before = everything(project)
    lines = run_child(READ_ONLY, project, home, project, under=OWN_MOUNTS)
    assert len(json.loads(lines[0])) == 2
    assert json.loads(lines[1]) == []
    assert lines[2] == "10 (20, [])"
    assert lines[3].startswith("JournalError")
    assert "fix the permissions" in lines[3]
    assert lines[4].startswith("JournalError")
    assert lines[5] == "pruned []"
    assert everything(project) == before
    (index,) = home.rglob("index-v*.sqlite3")
    assert index.is_relative_to(home / "cache" / "projects")


@needs_mounts
def test_with_a_home_that_may_only_be_read_too_the_journal_is_searched(
    memory: Ralph, project: Path, home: Path
) -> None:
    memory.feature("auth").remember_all(topical(20))
    memory.close()
    shutil.rmtree(home)
    home.mkdir()
    lines = run_child(READ_ONLY, project, home, project, home, under=OWN_MOUNTS)
    assert len(json.loads(lines[0])) == 2
    (note,) = json.loads(lines[1])
    assert note.startswith("searched the journal by words alone")
    assert "RALPH_HOME" in note
    assert lines[5].startswith("IndexOff")
    assert everything(home) == set()


FULL = """
import json, logging, os, subprocess, sys
from pathlib import Path
place, kilobytes = sys.argv[1], sys.argv[2]
os.environ["RALPH_HOME"] = str(Path(place, "home"))
subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", place], check=True)
from remembering import made, open_toy, topical
from ralph.errors import JournalError
acknowledged, told = [], []
root = Path(place, "project")
root.mkdir()
logging.getLogger("ralph").addHandler(logging.Handler())
logging.getLogger("ralph").handlers[0].emit = lambda record: told.append(record.getMessage())
memory = open_toy(root)
auth = memory.feature("auth")
for n, one in enumerate(topical(4000)):
    try:
        acknowledged.append(auth.remember(one).id)
    except JournalError as error:
        print(type(error).__name__, error)
        break
else:
    print("never full")
memory.close()
del memory, auth
again = open_toy(root)
auth = again.feature("auth")
count, complaints = auth.verify()
kept = [hit.id for hit in auth.recent(10_000)]
assert sorted(kept) == sorted(acknowledged), (len(kept), len(acknowledged))
assert complaints == [] and count == len(acknowledged), complaints
print(len(auth.search("login form validation", limit=20)) - len(acknowledged[::10]))
print(json.dumps(told))
# Space again: everything goes on, and the index catches up.
subprocess.run(["mount", "-o", "remount,size=64m", place], check=True)
auth.remember(made("written when there was space again", session_id="again"))
found = auth.search("written when there was space again")
print(found[0].record.summary, found.notes)
"""


@needs_mounts
def test_a_full_disk_loses_nothing_acknowledged_and_leaves_nothing_half_written(
    tmp_path: Path,
) -> None:
    lines = run_child(FULL, tmp_path, 600, under=OWN_MOUNTS)
    assert lines[0].startswith("JournalError")
    assert "No space left" in lines[0]
    assert "nothing was written" in lines[0]
    assert "Free up disk space" in lines[0]
    assert lines[1] == "0"
    told = json.loads(lines[2])
    assert told
    assert all("not indexed yet" in text for text in told)
    assert len(told) < 5  # not a line for every record
    assert lines[3] == "written when there was space again ()"


@needs_mounts
def test_a_disk_that_is_full_from_the_start_is_a_clear_error(tmp_path: Path) -> None:
    script = """
    import subprocess, sys
    from pathlib import Path
    place = sys.argv[1]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", place], check=True)
    from remembering import made, open_toy
    from ralph.errors import JournalError
    Path(place, "filler").write_bytes(b"x" * 8192)
    with open_toy(place) as memory:
        try:
            memory.feature("auth").remember(made("login form validation"))
        except JournalError as error:
            print(error)
    Path(place, "filler").unlink()
    subprocess.run(["mount", "-o", "remount,size=8m", place], check=True)
    with open_toy(place) as memory:
        print(len(memory.feature("auth").recent()))
        memory.feature("auth").remember(made("login form validation"))
        print(len(memory.feature("auth").search("login form validation")))
    """
    lines = run_child(script, tmp_path, under=OWN_MOUNTS)
    assert "No space left" in lines[0]
    assert "Free up disk space" in lines[0]
    assert lines[1:] == ["0", "1"]


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on the size of files")
def test_an_index_that_cannot_grow_is_told_and_the_journal_goes_on(
    memory: Ralph, project: Path
) -> None:
    memory.feature("auth").remember_all(topical(5))
    memory.close()
    script = """
    import resource, sys
    from pathlib import Path
    from remembering import made, open_toy
    journal = Path(sys.argv[1], ".ralph", "db", "memory", "auth.jsonl")
    limit = journal.stat().st_size + 3000
    with open_toy(sys.argv[1]) as memory:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        done = memory.feature("auth").remember(made("dark matter " + "of text " * 100))
        found = memory.feature("auth").search("dark matter of text")
        print(found[0].id == done.id, *found.notes)
    """
    # What SQLite writes for one record is larger than this journal with it.
    (line,) = run_child(script, project)
    assert line.startswith("True searched the journal by words alone")


# -- two projects


def test_status_tells_what_is_journalled_and_indexed(memory: Ralph) -> None:
    memory.feature("auth").remember_all(topical(7))
    told = status(memory)
    assert told.available
    assert told.memories["feature"] == {"journalled": 7, "indexed": 7}
    assert told.line.startswith("RAG: active")
    assert told.dimensions == 64


def test_two_projects_in_one_home_share_nothing(tmp_path: Path, home: Path) -> None:
    with open_toy(tmp_path / "one") as one, open_toy(tmp_path / "two") as two:
        one.feature("auth").remember(made("login form of the first project", session_id="1"))
        two.feature("auth").remember(made("login form of the second project", session_id="1"))
        assert one.project.id != two.project.id
        assert summaries(one.feature("auth").search("login form")) == [
            "login form of the first project"
        ]
        assert summaries(two.search("login form")) == ["login form of the second project"]
        names = {memory.feature("auth").target().name for memory in (one, two)}
        assert len(names) == 2
        assert one.orphans() == two.orphans() == []
    assert files_holding(tmp_path / "one", "second project") == []
