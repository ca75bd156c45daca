"""`ralph demo` as a person would run it: green, the real loop, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commanding import process

from ralph.doors.cli.main import run


def told(out: str) -> list[str]:
    """How each iteration ended, as the run said it."""
    return re.findall(r"^  (\w+)  iteration (?=\d)", out, re.MULTILINE)


def processes(folder: Path) -> set[str]:
    """The command lines of everything that runs and has to do with this folder."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(folder) in line:
            found.add(line)
    return found


@pytest.mark.slow
def test_the_demo_runs_green_and_leaves_nothing(tmp_path: Path) -> None:
    here, scratch, home = tmp_path / "it's here", tmp_path / "a scratch", tmp_path / "home"
    for folder in (here / ".ralph/db", scratch, home):
        folder.mkdir(parents=True)
    (here / ".ralph/db/tasks.yaml").write_text("tasks: 7\n", encoding="utf-8")  # not the demo's
    here.chmod(0o555)
    environ = {
        **{"HOME": str(home), "RALPH_HOME": str(home / "r"), "TMPDIR": str(scratch)},
        # What a person has set for their own projects does not count in here.
        **{"RALPH_PROJECT": str(here), "RALPH_REVIEW_EVERY": "1", "RALPH_AGENT": "nobody"},
    }

    ran = process(["demo"], cwd=here, environ=environ)

    here.chmod(0o755)
    out = ran.stdout.decode()
    assert ran.returncode == 0, ran
    assert ran.stderr == b""
    assert told(out) == ["failure", "success", "success"]
    assert "Stopped: no task is ready (1 failure, 2 success" in out
    assert "learned: " in out
    assert out.endswith("The temporary project is deleted.\n")
    before, after = re.findall(r"^\$ ralph search .*\n(.*)", out, re.MULTILINE)
    assert before == after  # the answer without the index
    assert list(scratch.iterdir()) == []
    assert list(home.iterdir()) == []
    assert [file.name for file in here.rglob("*") if file.is_file()] == ["tasks.yaml"]
    assert processes(scratch) == set()


@pytest.mark.slow
def test_a_demo_that_is_kept_can_be_looked_at(tmp_path: Path) -> None:
    ran = process(["demo", "--keep"], cwd=tmp_path, environ={"TMPDIR": str(tmp_path)})

    assert ran.returncode == 0, ran
    [folder] = tmp_path.iterdir()
    project = folder / "project"
    assert ran.stdout.decode().endswith(f"Kept in {project}\n")
    hits = json.loads(process(["recent", "--kind", "iteration", "--json"], cwd=project).stdout)
    assert [hit["record"]["outcome"] for hit in hits] == ["success", "success", "failure"]
    tasks = json.loads(process(["task", "list", "--json"], cwd=project).stdout)
    assert [task["status"] for task in tasks] == ["done", "done"]
    assert [one["author"] for task in tasks for one in task["comments"]] == ["agent", "agent"]


def test_a_step_that_fails_ends_the_demo_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "plan.md")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("ralph.doors.cli.commands.plan.import_plan", refuse)
    before = dict(os.environ)

    assert run(["demo"]) == 1

    assert capsys.readouterr().err == "ralph: plan.md: Permission denied\n"
    assert list(tmp_path.iterdir()) == []
    assert Path.cwd() == tmp_path
    assert dict(os.environ) == before


@pytest.mark.skipif(sys.platform == "win32", reason="a folder in use cannot be deleted there")
def test_the_demo_begins_also_in_a_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f'rmdir "{gone}" && exec "{sys.executable}" -c "{GONE}"'

    ran = subprocess.run(["sh", "-c", line], cwd=gone, capture_output=True, check=False, timeout=60)

    assert ran.stdout == b"somewhere\n", ran


GONE = (
    "from ralph.doors.cli.commands.run import _scratch\n"
    "with _scratch(keep=False) as folder: print('somewhere' if folder.is_dir() else '')\n"
)
