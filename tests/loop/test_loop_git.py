"""Permissions, the dry run, worktrees and commits of the loop, with real git."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from commanding import Line
from looping import Loop, calls, planned, scripted, shell, stand_in
from remembering import state_of

from ralph.clients import agent_permissions
from ralph.config import load, store
from ralph.errors import BadInput, BadSetting
from ralph.loop.agent import permission_lines, plan_scripts
from ralph.loop.git import changed_files, commit_changes
from ralph.memory.project import Project
from ralph.plan.model import Task
from ralph.plan.store import Plan

WORK = {"write": "src/login.py", "content": "form = 1\n"}
FINISHED = {"bash": "{{ralph}} task update 1 --status done"}


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def repository(loop: Loop, monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """The loop's project as a repository with one commit."""
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
    git(loop.root, "init", "-q", "-b", "main")
    (loop.root / "README").write_text("A shop.\n")
    (loop.root / ".gitignore").write_text("*.log\n")
    git(loop.root, "add", ".")
    git(loop.root, "commit", "-qm", "Begin")
    return loop.root


# -- permissions


def test_the_projects_commands_are_allowed_by_default_and_no_shell() -> None:
    allowed = agent_permissions("project").commands
    assert {"pytest", "npm test", "cargo test", "go test", "make", "git commit"} <= set(allowed)
    assert not {"git", "git push", "curl", "sudo", "rm", "sh", "bash", "npm", "pip"} & set(allowed)
    assert agent_permissions("project, docker  compose,").commands[-1] == "docker compose"
    assert agent_permissions("full").full
    assert not agent_permissions("fully").full


def test_the_agent_gets_a_rule_for_each_command_or_the_whole_shell(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("claude", tmp_path, monkeypatch)
    for setting in ("project", "full"):
        monkeypatch.setenv("RALPH_AGENT_PERMISSIONS", setting)
        loop("claude", max_iterations=1)
    limited, full = (call["argv"] for call in calls(tmp_path))
    assert {"Bash(git commit:*)", "Bash(ralph:*)"} <= set(limited)
    assert "Bash" not in limited
    assert "Bash" in full
    assert not [word for word in full if word.startswith("Bash(")]


def test_what_an_agent_may_do_is_told_once_and_when_it_changed(
    loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("claude", tmp_path, monkeypatch)
    told = []
    for setting in ("project", "project", "full"):
        monkeypatch.setenv("RALPH_AGENT_PERMISSIONS", setting)
        loop("claude", max_iterations=1)
        told.append([facts["lines"][0] for facts in loop.facts("permissions")])
    assert [len(lines) for lines in told] == [1, 0, 1]
    assert "other commands are refused" in told[0][0]
    assert "any command as you" in told[2][0]
    assert permission_lines("./my-agent", "project") == []


def test_a_clone_cannot_widen_it(tmp_path: Path, home: Path) -> None:
    project = tmp_path / "clone" / ".ralph" / "rag_config.json"
    project.parent.mkdir(parents=True)

    def allowed(value: str, own: str = "") -> str:
        project.write_text(json.dumps({"agent_permissions": value}))
        given = {"RALPH_AGENT_PERMISSIONS": own} if own else {}
        return load(home=home, project_file=project, environ=given).settings.agent_permissions

    assert allowed("full") == "project"
    assert allowed("project, curl") == "project"
    store(home / "config.json", "agent_permissions", "full")
    assert allowed("project") == "project"  # it may ask for less
    store(home / "config.json", "agent_permissions", "project")
    store(project, "agent_permissions", "full", home=home)  # a person says it
    assert load(home=home, project_file=project, environ={}).settings.agent_permissions == "full"


def test_a_plan_can_name_programs_of_the_project_and_nothing_else(tmp_path: Path) -> None:
    planned(tmp_path)
    for name in ("scripts/check", "docs/notes.md", "run.sh"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("")
        file.chmod(0o644 if name.endswith(".md") else 0o755)
    (tmp_path / "scripts" / "out").symlink_to("/bin/rm")
    named = ["`scripts/check --fast` passes", "`./run.sh` and `curl x`", "read `docs/notes.md`"]
    hostile = "`/bin/rm -rf`, `../../bin/rm`, `scripts/out`, `.git/hooks/x`, `rm`"
    task = Task(id=1, feature="a", title="T", acceptance_criteria=tuple(named), description=hostile)
    assert plan_scripts(Plan(tmp_path), task) == ["scripts/check", "./run.sh"]


def test_denied_calls_are_summed_up_with_the_setting_to_change(loop: Loop, tmp_path: Path) -> None:
    lines = [
        {"type": "system", "subtype": "init", "cwd": str(loop.root), "session_id": "s"},
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": "I could not.",
            "session_id": "s",
            "permission_denials": [
                {"tool_name": "Bash", "tool_input": {"command": "docker ps"}},
                {"tool_name": "WebFetch", "tool_input": {}},
            ],
        },
    ]
    text = "\n".join(map(json.dumps, lines))
    loop(shell(tmp_path, f"cat <<'E'\n{text}\nE\n"), max_iterations=1)
    assert loop.facts("ended")[0]["denied"] == ["Bash(docker ps)", "WebFetch"]
    [hint] = loop.facts("stopped")[0]["hints"]
    assert hint.startswith("2 calls denied: Bash(docker ps), WebFetch. ")
    assert "ralph config --user agent_permissions 'project, COMMAND'" in hint


# -- the dry run


def files_of(*folders: Path) -> dict[str, bytes]:
    found = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    return {str(file): file.read_bytes() for file in found}


def test_a_dry_run_shows_everything_and_writes_nothing(
    ralph: Line, project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(project)
    stand_in("claude", tmp_path, monkeypatch)
    ralph.well("task", "list")
    before = files_of(project, home)

    out = ralph.well("run", "--dry-run", "--budget-usd", "2", "--max-iterations", "3").out
    found = ralph.well("run", "--dry-run", "--json").json

    assert files_of(project, home) == before
    assert not (tmp_path / "calls.jsonl").exists()
    assert "next: auth, task 1: Add the login form" in out
    for line in ("budget_usd: 2.0", "max_iterations: 3", "timeout: 30 min", "review: no"):
        assert line in out.splitlines()
    assert "claude may edit files here" in out
    assert "allowed_commands: python, " in out
    assert "Bash(" not in out.replace("Bash(docker", "")
    assert (found["task_id"], found["review"]) == (1, False)
    assert Path(found["command"][0]).name == "claude"
    assert "Bash(pytest:*)" in found["command"]
    assert found["prompt_tokens"] > 100
    assert (found["directory"], found["branch"]) == (str(project), None)


def test_a_dry_run_without_a_ready_task_says_why(ralph: Line, project: Path) -> None:
    planned(project)
    ran = ralph.well("run", "--dry-run", "--task", "2", "--agent", "true")
    assert ran.out == "Nothing would run: task 2 is not ready: it waits for 1.\n"


def test_a_dry_run_refuses_what_a_run_refuses(ralph: Line, project: Path) -> None:
    planned(project)
    assert "was not found" in ralph("run", "--dry-run", "--agent", "no-such-agent").complaint
    ran = ralph("run", "--dry-run", "--agent", "true", "--worktree")
    assert ran.complaint.startswith("ralph: ")
    assert "--worktree needs a git repository" in ran.complaint


# -- commits


def test_each_success_is_a_commit_with_the_iterations_id(loop: Loop, repository: Path) -> None:
    tmp = repository.parent
    loop(
        scripted(tmp, {"steps": [WORK, FINISHED], "result": "Done."}), max_iterations=1, commit=True
    )

    [made] = loop.facts("committed")
    assert (made["files"], made["error"]) == (1, "")
    assert made["commit"] == git(repository, "rev-parse", "--short", "HEAD")
    assert git(repository, "log", "-1", "--format=%s") == "auth: Add the login form"
    with loop.opened() as ralph:
        [(located, _)] = ralph.feature("auth").iterations()
    trailer = git(repository, "log", "-1", "--format=%(trailers:key=Ralph-Iteration,valueonly)")
    assert trailer == located.record.id
    assert git(repository, "show", "--name-only", "--format=", "HEAD") == "src/login.py"


def test_the_subject_of_a_commit_has_no_hidden_characters(loop: Loop, repository: Path) -> None:
    title = "Add\x1b[31m the \x1b]8;;http://evil\x07login\u202e form\u2066\u200b\x7f"
    found = commit_changes(repository, set(), title=title, iteration="x")
    assert found["commit"] == ""  # nothing has changed yet
    (repository / "new.txt").write_text("new", encoding="utf-8")
    commit_changes(repository, set(), title=title, iteration="x")
    assert git(repository, "log", "-1", "--format=%s") == "Add the login form"


def test_what_the_person_had_changed_is_never_committed(loop: Loop, repository: Path) -> None:
    (repository / "README").write_text("My own words.\n")
    (repository / "staged.py").write_text("mine = 1\n")
    (repository / "notes.txt").write_text("mine\n")
    git(repository, "add", "staged.py")
    steps = [
        WORK,
        {"write": "README", "content": "The agent's words.\n"},
        {"write": "debug.log", "content": "noise\n"},
        FINISHED,
    ]
    loop(scripted(repository.parent, {"steps": steps}), max_iterations=1, commit=True)

    assert git(repository, "show", "--name-only", "--format=", "HEAD") == "src/login.py"
    [made] = loop.facts("committed")
    assert set(made["left_out"]) == {"README", "notes.txt", "staged.py"}
    status = git(repository, "status", "--porcelain", "--", "README", "staged.py", "notes.txt")
    assert status.split("\n") == ["M README", "A  staged.py", "?? notes.txt"]


def test_deleted_and_odd_names_are_committed(loop: Loop, repository: Path) -> None:
    odd = ":(glob)*, it's.py"
    steps = [{"write": odd, "content": "x\n"}, {"bash": "rm README"}, FINISHED]
    loop(scripted(repository.parent, {"steps": steps}), max_iterations=1, commit=True)
    listed = git(repository, "show", "-z", "--name-status", "--format=", "HEAD").split("\0")
    assert listed[:4] == ["A", odd, "D", "README"]


def test_nothing_changed_is_no_commit_and_a_failure_neither(loop: Loop, repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    tmp = repository.parent
    loop(scripted(tmp, {"steps": [WORK], "result": "Not done."}), max_iterations=1, commit=True)
    assert loop.facts("committed") == []
    loop(scripted(tmp, {"steps": [FINISHED]}), max_iterations=1, commit=True)
    [made] = loop.facts("committed")
    # The file of the run before is not of this run.
    assert (made["commit"], made["error"], made["left_out"]) == ("", "", ("src/login.py",))
    assert git(repository, "rev-parse", "HEAD") == head


@pytest.mark.skipif(os.name == "nt", reason="a hook is a program")
def test_a_hook_that_refuses_is_told_and_the_run_goes_on(loop: Loop, repository: Path) -> None:
    hook = repository / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho 'lint: 3 problems' >&2\nexit 1\n")
    hook.chmod(0o755)
    head = git(repository, "rev-parse", "HEAD")
    done = scripted(
        repository.parent, {"when": "task: 1", "steps": [WORK, FINISHED]}, {"steps": []}
    )
    loop(done, max_iterations=2, commit=True)
    [made] = loop.facts("committed")
    assert "lint: 3 problems" in made["error"]
    assert len(loop.outcomes) == 2
    assert git(repository, "rev-parse", "HEAD") == head
    assert git(repository, "status", "--porcelain", "src") == "?? src/"


def test_commit_needs_a_repository_with_a_commit(loop: Loop, tmp_path: Path) -> None:
    agent = scripted(tmp_path, {"steps": []})
    with pytest.raises(BadInput, match="--commit needs a git repository"):
        loop(agent, commit=True)
    git(loop.root, "init", "-q")
    with pytest.raises(BadInput, match="needs a repository with a commit"):
        loop(agent, commit=True)
    assert loop.facts("started") == []


# -- worktrees


def test_a_feature_gets_a_worktree_of_its_own_and_the_plan_stays_the_projects(
    loop: Loop, repository: Path, home: Path
) -> None:
    agent = scripted(repository.parent, {"steps": [WORK, FINISHED], "result": "Done."})
    loop(agent, max_iterations=1, worktree=True, commit=True)

    [tree] = loop.facts("worktree")
    path = Path(tree["path"])
    assert path.is_relative_to(home / "worktrees")
    assert (path / "src" / "login.py").exists()
    assert not (repository / "src").exists()
    assert git(path, "rev-parse", "--abbrev-ref", "HEAD") == tree["branch"] == "ralph/auth"
    assert loop.outcomes == ["success"]
    assert loop.plan.task(1).status == "done"
    [told] = loop.told()
    assert [(file.path, file.action) for file in told.files_touched] == [
        ("src/login.py", "created")
    ]
    assert loop.facts("stopped")[0]["hints"] == [
        f"To merge auth: run in {repository}: git merge ralph/auth"
    ]
    git(repository, "merge", "-q", "ralph/auth")
    assert (repository / "src" / "login.py").read_text() == "form = 1\n"


def test_the_next_run_uses_the_same_worktree_again(loop: Loop, repository: Path) -> None:
    for text in ("one", "two"):
        step = {"bash": f"echo {text} >> log.txt"}
        loop(scripted(repository.parent, {"steps": [step]}), max_iterations=1, worktree=True)
        # Where there is one already, your own changes do no harm.
        (repository / "README").write_text("My own words.\n")
    [tree] = loop.facts("worktree")
    assert (Path(tree["path"]) / "log.txt").read_text() == "one\ntwo\n"
    [hint] = loop.facts("stopped")[0]["hints"]
    assert f"commit 1 changed file in {tree['path']}, then run in" in hint
    subprocess.run(["rm", "-rf", tree["path"]], check=True)
    loop(scripted(repository.parent, {"steps": []}), max_iterations=1, worktree=True)
    assert (Path(tree["path"]) / ".git").exists()


def test_uncommitted_changes_are_refused_before_a_worktree_is_made(
    loop: Loop, repository: Path, home: Path
) -> None:
    (repository / "README").write_text("My own words.\n")
    with pytest.raises(BadInput, match=r"would lack your uncommitted changes: README.*Commit them"):
        loop(scripted(repository.parent, {"steps": []}), worktree=True)
    assert loop.facts("started") == []
    assert not (home / "worktrees").exists()
    assert git(repository, "branch", "--list", "ralph/*") == ""


def test_a_project_in_a_folder_of_the_repository_is_worked_on_in_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    loop = Loop(planned(top / "shop"))
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ada@example.org")
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-qm", "Begin")
    loop(scripted(tmp_path, {"steps": [WORK, FINISHED]}), max_iterations=1, worktree=True)
    [tree] = loop.facts("worktree")
    assert tree["cwd"] == f"{tree['path']}/shop"
    assert (Path(tree["cwd"]) / "src" / "login.py").exists()


@pytest.mark.parametrize(
    "feature", ["../../etc", "a b/c", "-x", "..", "é", "a..b", "x.lock", "n" * 60]
)
def test_a_features_name_cannot_lead_elsewhere(
    loop: Loop, repository: Path, home: Path, feature: str
) -> None:
    from ralph.loop.git import worktree_of

    tree = worktree_of(Project(repository, home), feature)
    assert Path(tree.path).resolve().parent == (home / "worktrees" / state_of(loop.root).name)
    assert (Path(tree.path) / "README").exists()


def test_git_of_the_project_is_never_run(
    loop: Loop, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evil = repository / "git"
    evil.write_text("#!/bin/sh\ntouch EVIL\n")
    evil.chmod(0o755)
    git(repository, "add", "git")
    git(repository, "commit", "-qm", "Evil")
    monkeypatch.setenv("PATH", f".:{repository}:{os.environ['PATH']}")
    loop(scripted(repository.parent, {"steps": [WORK, FINISHED]}), max_iterations=1, commit=True)
    assert loop.facts("committed")[0]["commit"]
    assert not (repository / "EVIL").exists()


def test_a_value_that_is_no_text_is_no_permission(home: Path) -> None:
    with pytest.raises(BadSetting):
        store(home / "config.json", "agent_permissions", "[1]")


def test_what_tools_leave_behind_is_not_committed(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    for folder in ("src/__pycache__", "node_modules/left", "target/debug", "build"):
        (root / folder).mkdir(parents=True)
    (root / "src" / "kept.pyc").write_text("tracked")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "First"]):
        git(root, *words)
    (root / "target" / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55")
    for name in (
        *("src/app.py", "src/__pycache__/app.pyc", "src/kept.pyc", "node_modules/left/pad.js"),
        *("target/debug/app", "build/notes.txt", ".coverage"),
    ):
        (root / name).write_text("new")

    assert changed_files(root) == {"src/app.py", "src/kept.pyc", "build/notes.txt"}
