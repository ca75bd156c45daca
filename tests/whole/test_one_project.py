"""A project is known by what it is: before `init`, in a worktree, on a second machine.

Hooks for the user work in every folder, and folders can be left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commanding import Line
from hooking import Session, files_below, log

from ralph.memory import project as projects
from ralph.memory.project import Focus, PlainFolder, Project, project_or_folder, set_focus
from ralph.memory.ralph import open_ralph

GATEWAY = "Why does the gateway answer with a timeout?"
CACHE = "Where is the cache of the gateway configured?"


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def repository_at(folder: Path, name: str = "first") -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "name").write_text(name, encoding="utf-8")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", name)
    return folder


@pytest.fixture(autouse=True)
def everywhere(ralph: Line, words: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks are installed for the user."""
    for name in ("CLAUDE_CONFIG_DIR", "CLAUDE_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    ralph.well("hooks", "install", "--user", "--no-mcp")


def hold(folder: Path, tmp_path: Path, text: str, *, began: datetime | None = None) -> Session:
    """A session of one exchange, with all its hooks."""
    began = began or datetime.now(UTC)
    session = Session(folder, tmp_path, began=began.isoformat())
    session.hook("session-start", source="startup")
    session.hook("user-prompt-submit", prompt=text)
    session.prompts(text)
    session.says(f"It is told in the notes on: {text}")
    session.hook("stop")
    return session


def found(folder: Path, query: str = "gateway") -> list[str]:
    home = Path(os.environ["RALPH_HOME"])
    with open_ralph(project=project_or_folder(folder, home=home)) as opened:
        return sorted(hit.record.user for hit in opened.search(query, min_score=0.1))


def told(folder: Path, tmp_path: Path, prompt: str = "what about the gateway timeout") -> str:
    return Session(folder, tmp_path).hook("user-prompt-submit", prompt=prompt).context


def at(ralph: Line, folder: Path, *words: str) -> str:
    """What a command prints in another folder."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        return ralph.well(*words).out
    finally:
        os.chdir(before)


# -- hooks in every folder


def test_installing_for_the_user_says_that_every_folder_is_saved(ralph: Line, home: Path) -> None:
    said = ralph.well("hooks", "install", "--user", "--no-mcp").out
    assert f"sessions in every folder are saved in {home}" in said
    assert "ralph pause --here" in said
    assert json.loads((home / "config.json").read_text())["pause_folders"] == []


def test_a_session_in_a_plain_folder_is_saved_in_the_home_and_recalled(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    hold(folder, tmp_path, GATEWAY)
    assert found(folder) == [GATEWAY]
    assert GATEWAY in told(folder, tmp_path)
    assert files_below(folder) == set()
    assert log(folder) == []


def test_a_session_in_the_home_folder_is_saved(tmp_path: Path, home: Path) -> None:
    hold(home.parent, tmp_path, GATEWAY)
    assert found(home.parent) == [GATEWAY]
    assert not (home / "db").exists()


def test_without_the_setting_hooks_stay_out_of_folders_without_init(
    tmp_path: Path, home: Path
) -> None:
    (home / "config.json").unlink()
    hold(repository_at(tmp_path / "plain"), tmp_path, GATEWAY)
    assert not (home / "journal").exists()


def test_what_was_said_in_one_folder_is_not_found_in_another(tmp_path: Path, ralph: Line) -> None:
    ours, theirs = (repository_at(tmp_path / name, name) for name in ("ours", "theirs"))
    hold(ours, tmp_path, GATEWAY)
    assert found(theirs) == []
    assert told(theirs, tmp_path) == ""
    assert GATEWAY not in at(ralph, theirs, "search", "gateway")
    assert GATEWAY not in at(ralph, theirs, "recent")
    assert GATEWAY in at(ralph, ours, "search", "gateway")


def test_a_folder_of_a_repository_belongs_to_the_repository(tmp_path: Path) -> None:
    root = repository_at(tmp_path / "repository")
    (root / "src" / "deep").mkdir(parents=True)
    hold(root / "src" / "deep", tmp_path, GATEWAY)
    assert found(root) == found(root / "src") == [GATEWAY]


def test_iterations_and_the_plan_want_init(
    tmp_path: Path, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository_at(tmp_path / "plain")
    monkeypatch.chdir(folder)
    assert "ralph init" in ralph("record", "--feature", "auth", "-", stdin='{"summary": "x"}').err
    assert "ralph init" in ralph("feature", "list").err
    set_focus(PlainFolder(folder, Path(os.environ["RALPH_HOME"])), Focus("auth"))
    hold(folder, tmp_path, GATEWAY)
    assert found(folder) == [GATEWAY]
    assert not (folder / ".ralph").exists()


# -- folders that are left out


def test_a_folder_is_paused_here_and_goes_on(tmp_path: Path, ralph: Line) -> None:
    folder = repository_at(tmp_path / "secret")
    now = datetime.now(UTC)
    assert f"Memory is paused in {folder}" in at(ralph, folder, "pause", "--here")
    hold(folder, tmp_path, CACHE, began=now + timedelta(seconds=2))
    assert found(folder) == []
    assert told(folder, tmp_path, CACHE) == ""
    assert "is paused" in at(ralph, folder, "hooks", "status")
    assert at(ralph, folder, "resume", "--here") == "Recording again.\n"
    hold(folder, tmp_path, GATEWAY, began=now + timedelta(hours=1))
    assert found(folder) == [GATEWAY]


def test_a_pause_here_is_for_all_folders_below_and_no_other(tmp_path: Path, ralph: Line) -> None:
    clients, other = tmp_path / "clients", tmp_path / "clients-not"
    clients.mkdir()
    at(ralph, clients, "pause", "--here")
    later = datetime.now(UTC) + timedelta(seconds=2)
    hold(repository_at(clients / "acme"), tmp_path, CACHE, began=later)
    hold(repository_at(other, "other"), tmp_path, GATEWAY, began=later)
    assert found(clients / "acme") == []
    assert found(other) == [GATEWAY]


@pytest.mark.parametrize("pattern", ["{0}/clients/*", "~/link/clients", "acme*", "{0}/cl*"])
def test_folders_that_fit_a_pattern_are_left_out(
    tmp_path: Path, ralph: Line, home: Path, pattern: str
) -> None:
    (home.parent / "link").symlink_to(tmp_path)
    (tmp_path / "clients").mkdir()
    folder = repository_at(tmp_path / "clients" / "acme-shop")
    ralph.well("config", "--user", "pause_folders", json.dumps([pattern.format(tmp_path)]))
    client = home.parent / "link" / "clients" / "acme-shop"  # as the client names it
    hold(client, tmp_path, CACHE)
    assert found(folder) == []
    hold(repository_at(tmp_path / "ours", "ours"), tmp_path, GATEWAY)
    assert found(tmp_path / "ours") == [GATEWAY]


def test_a_pattern_leaves_out_a_project_with_init_and_imports_of_it(
    tmp_path: Path, ralph: Line, project: Path
) -> None:
    ralph.well("config", "--user", "pause_folders", json.dumps([str(project)]))
    session = hold(project, tmp_path, CACHE)
    sessions = tmp_path / "sessions"
    (sessions / "x").mkdir(parents=True)
    shutil.copy(session.transcript, sessions / "x")
    os.utime(sessions / "x" / session.transcript.name, (0, 0))
    ralph.well("conversations", "import", "claude-code", str(sessions))
    assert found(project) == []
    assert "by the setting pause_folders" in ralph.well("status").out
    assert "by the setting pause_folders." in ralph.well("resume").out


def test_a_part_of_a_repository_is_left_out_whoever_saves_it(tmp_path: Path, ralph: Line) -> None:
    root = repository_at(tmp_path / "repository")
    (root / "secret").mkdir()
    ralph.well("config", "--user", "pause_folders", '["secret"]')
    lost = Session(root / "secret", tmp_path, began=datetime.now(UTC).isoformat())
    lost.prompts(CACHE)
    lost.says("It is there.")
    lost.hook("pre-compact")
    lost.hook("stop")
    hold(root, tmp_path, GATEWAY)
    assert found(root) == [GATEWAY]


def test_a_setting_that_cannot_be_read_keeps_everything_out(tmp_path: Path, home: Path) -> None:
    (home / "config.json").write_text('{"pause_folders": "~/clients"}', encoding="utf-8")
    folder = repository_at(tmp_path / "plain")
    hold(folder, tmp_path, GATEWAY)
    assert not (home / "journal").exists()


def test_a_project_may_not_set_which_folders_are_left_out(ralph: Line) -> None:
    assert "cannot be set in a project's file" in ralph("config", "pause_folders", "[]").complaint


# -- before init


def test_what_was_said_before_init_belongs_to_the_project(tmp_path: Path, ralph: Line) -> None:
    for folder in (repository_at(tmp_path / "repository"), tmp_path / "plain"):
        folder.mkdir(exist_ok=True)
        hold(folder, tmp_path, GATEWAY)
        at(ralph, folder, "init")
        hold(folder, tmp_path, CACHE)
        assert found(folder) == sorted([CACHE, GATEWAY])
        listed = json.loads(at(ralph, folder, "conversations", "list", "--json"))
        assert len(listed) == 2
        exported = json.loads(at(ralph, folder, "conversations", "export", "-"))
        assert len(exported["conversations"]) == 2
        assert GATEWAY in told(folder, tmp_path)
        at(ralph, folder, "forget", "--conversations", "--all", "--yes")
        assert found(folder) == []


def test_what_was_imported_before_init_belongs_to_the_project(tmp_path: Path, ralph: Line) -> None:
    folder = repository_at(tmp_path / "repository")
    session = Session(folder, tmp_path)
    session.prompts(GATEWAY)
    session.says("Because of the proxy.")
    sessions = tmp_path / "sessions"
    (sessions / "x").mkdir(parents=True)
    shutil.copy(session.transcript, sessions / "x")
    os.utime(sessions / "x" / session.transcript.name, (0, 0))
    said = ralph.well("conversations", "import", "claude-code", str(sessions), "--all").out
    assert "Imported 1 conversation" in said
    at(ralph, folder, "init")
    assert found(folder) == [GATEWAY]


def test_a_pause_of_before_init_still_holds(tmp_path: Path, home: Path, ralph: Line) -> None:
    folder = repository_at(tmp_path / "repository")
    plain = {"since": "2026-01-01T00:00:00Z", "project": PlainFolder(folder, home).id}
    (home / "paused.json").write_text(json.dumps({"pauses": [plain]}), encoding="utf-8")
    at(ralph, folder, "init")
    hold(folder, tmp_path, GATEWAY)
    assert found(folder) == []
    assert at(ralph, folder, "resume") == "Recording again.\n"


def test_what_was_forgotten_before_init_stays_forgotten(tmp_path: Path, ralph: Line) -> None:
    folder = repository_at(tmp_path / "repository")
    session = hold(folder, tmp_path, GATEWAY)
    at(ralph, folder, "forget", "--conversations", "--all", "--yes")
    at(ralph, folder, "init")
    session.hook("session-end")
    session.hook("session-start", source="resume")
    session.hook("stop")
    assert found(folder) == []


def test_the_id_of_a_project_that_lost_its_folder_comes_back(tmp_path: Path, ralph: Line) -> None:
    folder = repository_at(tmp_path / "repository")
    at(ralph, folder, "init")
    before = Project(folder).id
    shutil.rmtree(folder / ".ralph")
    at(ralph, folder, "init")
    assert Project(folder).id == before


# -- worktrees


def test_a_worktree_shares_the_memory_with_and_without_init(tmp_path: Path, ralph: Line) -> None:
    root, tree = repository_at(tmp_path / "repository"), tmp_path / "tree"
    hold(root, tmp_path, GATEWAY)
    git(root, "worktree", "add", "-q", str(tree))
    assert found(tree) == [GATEWAY]
    at(ralph, root, "init")  # nobody commits it, so the worktree has no .ralph
    hold(tree, tmp_path, CACHE)
    assert found(tree) == found(root) == sorted([CACHE, GATEWAY])
    assert GATEWAY in told(tree, tmp_path)
    at(ralph, tree, "init")
    assert Project(tree).id == Project(root).id
    assert found(tree) == found(root) == sorted([CACHE, GATEWAY])


def test_hooks_ask_git_for_the_first_commit_once(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = repository_at(tmp_path / "repository")
    known = PlainFolder(root, home).git_id
    monkeypatch.setattr(projects, "ask_git", lambda *words: pytest.fail("git was asked again"))
    assert PlainFolder(root, home).git_id == known != ""


def test_the_home_folder_as_a_repository_is_not_everybodys(tmp_path: Path, home: Path) -> None:
    git(home.parent, "init", "-q")
    (home.parent / "notes").mkdir()
    hold(home.parent, tmp_path, GATEWAY)
    assert found(home.parent / "notes") == []


# -- a second machine


def second_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "second"
    place.mkdir()
    for name, folder in (("HOME", place), ("RALPH_HOME", place / ".ralph")):
        monkeypatch.setenv(name, str(folder))
    return place


def test_on_a_second_machine_everything_is_found_in_its_own_project(
    tmp_path: Path, ralph: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {name: f"Why does the gateway of {name} answer late?" for name in "abcd"}
    roots = {name: repository_at(tmp_path / name, name) for name in asked}
    at(ralph, roots["a"], "init")
    git(roots["a"], "add", ".")
    git(roots["a"], "commit", "-qm", "memory")
    at(ralph, roots["b"], "init")  # which nobody commits
    for name, root in roots.items():
        hold(root, tmp_path, asked[name])
    at(ralph, tmp_path, "conversations", "export", str(tmp_path / "all.json"), "--everywhere")

    place = second_machine(tmp_path, monkeypatch)
    for name in "abc":
        git(place, "clone", "-q", str(roots[name]), name)
    at(ralph, place / "b", "init")
    said = at(ralph, place, "conversations", "import", str(tmp_path / "all.json"))
    assert "Imported 4 conversations, 4 exchanges (for 4 other projects)" in said
    for name in "abc":
        assert found(place / name) == [asked[name]]
        assert asked[name] in told(place / name, tmp_path, asked[name]) or name == "c"
    assert found(place) == []
    # One that appears later has its own, and `init` keeps the id.
    git(place, "clone", "-q", str(roots["d"]), "d")
    assert found(place / "d") == [asked["d"]]
    at(ralph, place / "d", "init")
    assert found(place / "d") == [asked["d"]]
    again = at(ralph, place / "a", "conversations", "import", str(tmp_path / "all.json"))
    assert "Imported 0 conversations, 0 exchanges (4 known" in again


def test_a_project_is_named_by_ids_alone(tmp_path: Path, ralph: Line, home: Path) -> None:
    talk = {"project_ids": ["../../trust"], "exchanges": [{"user": GATEWAY}]}
    file = tmp_path / "talk.json"
    file.write_text(json.dumps({"conversations": [talk]}), encoding="utf-8")
    assert "project_ids[0]" in ralph("conversations", "import", file).complaint
    assert not (home / "journal").exists()


# -- who cannot claim a repository's memory


def _worktree_file(root: Path, evil: Path) -> None:
    (evil / ".git").write_text(f"gitdir: {root / '.git'}\n", encoding="utf-8")


def _foreign_worktree_file(root: Path, evil: Path) -> None:
    git(root, "worktree", "add", "-q", str(root.parent / "tree"))
    linked = root / ".git" / "worktrees" / "tree"
    (evil / ".git").write_text(f"gitdir: {linked}\n", encoding="utf-8")


def _linked_folder(root: Path, evil: Path) -> None:
    (evil / ".git").symlink_to(root / ".git")


def _linked_objects(root: Path, evil: Path) -> None:
    shutil.copytree(root / ".git", evil / ".git")
    shutil.rmtree(evil / ".git" / "objects")
    (evil / ".git" / "objects").symlink_to(root / ".git" / "objects")


def _common_folder(root: Path, evil: Path) -> None:
    (evil / ".git").mkdir()
    for name in ("objects", "refs"):
        (evil / ".git" / name).mkdir()
    shutil.copy(root / ".git" / "HEAD", evil / ".git" / "HEAD")
    (evil / ".git" / "commondir").write_text(f"{root / '.git'}\n", encoding="utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="links as POSIX has them")
@pytest.mark.parametrize(
    "claim",
    [_worktree_file, _foreign_worktree_file, _linked_folder, _linked_objects, _common_folder],
)
def test_a_git_folder_that_leads_elsewhere_claims_nothing(tmp_path: Path, claim: object) -> None:
    root, evil = repository_at(tmp_path / "own"), tmp_path / "evil"
    hold(root, tmp_path, GATEWAY)
    evil.mkdir()
    assert callable(claim)
    claim(root, evil)
    assert found(root) == [GATEWAY]
    assert found(evil) == []
    assert told(evil, tmp_path) == ""


@pytest.mark.parametrize("who", ["before", "after", "path"])
def test_an_id_that_anybody_can_make_cannot_be_claimed_by_writing_it_down(
    tmp_path: Path, ralph: Line, home: Path, who: str
) -> None:
    root, evil = repository_at(tmp_path / "own"), repository_at(tmp_path / "evil", "evil")
    if who == "path":
        shutil.rmtree(root / ".git")
    identity = PlainFolder(root, home).id
    if who != "before":
        hold(root, tmp_path, GATEWAY)
    (evil / ".ralph" / "db").mkdir(parents=True)
    metadata = f"project_id: {identity}\n"
    (evil / ".ralph" / "db" / "metadata.yaml").write_text(metadata, encoding="utf-8")
    assert found(evil) == []
    hold(evil, tmp_path, CACHE)
    if who == "before":
        hold(root, tmp_path, GATEWAY)
    assert found(evil) == [CACHE]
    assert GATEWAY not in told(evil, tmp_path)
    assert GATEWAY not in at(ralph, evil, "search", "gateway")
    assert found(root) == [GATEWAY]
    assert Project(evil, home).id != identity


def test_a_shallow_clone_is_known_by_its_path(tmp_path: Path, home: Path) -> None:
    root = repository_at(tmp_path / "own")
    (root / "name").write_text("second", encoding="utf-8")
    git(root, "commit", "-qam", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", root.as_uri(), "shallow")
    assert PlainFolder(tmp_path / "shallow", home).git_id == ""
