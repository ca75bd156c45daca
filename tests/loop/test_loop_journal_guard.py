"""An agent that damages the journal: what stood there when its run began comes back, once."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from journaling import unnumbered
from looping import DONE, Loop, eventually, lines, planned, ralph_process, scripted

from ralph.journal.copies import copy_journals, restore_lines
from ralph.journal.file import JournalFolder
from ralph.memory.keeping import choose, forget
from ralph.memory.ralph import open_ralph
from ralph.records.iteration import Iteration

MEMORY = ".ralph/db/memory"
COUNT = 13


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    loop = Loop(planned(tmp_path / "project"), embedder="none")
    with loop.opened() as ralph:
        for n in range(COUNT):
            summary = f"Attempt {n} at the login form, which people use to sign in every day."
            ralph.feature("auth").remember(Iteration(summary=summary))
        ralph.feature("search").remember(Iteration(summary="Ranked by age."))
    return loop


def journal(loop: Loop, feature: str = "auth") -> list[str]:
    return lines(loop.root / MEMORY / f"{feature}.jsonl")


def reported(loop: Loop) -> str:
    return "\n".join(line for facts in loop.facts("journal") for line in facts["lines"])


def play(loop: Loop, tmp_path: Path, *commands: str) -> None:
    steps = [DONE, *({"bash": command} for command in commands)]
    loop(scripted(tmp_path, {"steps": steps, "result": "Tidied up."}), max_iterations=1)


def git(loop: Loop, *words: str) -> None:
    subprocess.run(["git", *words], cwd=loop.root, check=True, capture_output=True)


def begin_repository(loop: Loop) -> None:
    git(loop, "init", "-q", "-b", "main")
    git(loop, "config", "user.email", "a@example.org")
    git(loop, "config", "user.name", "A")


STONE = f"""\
import json, pathlib
file = pathlib.Path({MEMORY!r}) / "auth.jsonl"
record = json.loads(file.read_text().splitlines()[4])
stone = {{"v": 1, "kind": "forgotten", "id": record["id"], "at": "2026-01-01T00:00:00Z"}}
file.open("a").write(json.dumps(stone) + "\\n")
"""
DAMAGES = {
    "the folder is deleted": f"rm -r {MEMORY}",
    "all of .ralph is deleted": "rm -rf .ralph",
    "a file is deleted": f"rm {MEMORY}/auth.jsonl",
    "it is emptied": f": > {MEMORY}/auth.jsonl",
    "half of it is left": f"head -c 700 {MEMORY}/auth.jsonl > x; cat x > {MEMORY}/auth.jsonl",
    "a line is deleted": f"sed -i.bak 4d {MEMORY}/auth.jsonl",
    "a line is altered": f"sed -i.bak 's/Attempt 3/Success 3/' {MEMORY}/auth.jsonl",
    "it is garbled": f"head -c 2000 /dev/urandom > {MEMORY}/auth.jsonl",
    "it became a folder": f"rm {MEMORY}/auth.jsonl; mkdir {MEMORY}/auth.jsonl",
    "it became a link": f"mv {MEMORY}/auth.jsonl ../away; ln -s $PWD/../away {MEMORY}/auth.jsonl",
    "the folder became a link": f"mv {MEMORY} ../away; ln -s $PWD/../away {MEMORY}",
    "a record is hidden by a tombstone": "python stone.py",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_an_agent_takes_from_the_journal_is_restored(
    loop: Loop, tmp_path: Path, damage: str
) -> None:
    (loop.root / "stone.py").write_text(STONE)
    before = journal(loop)
    play(loop, tmp_path, DAMAGES[damage].replace("python", sys.executable))
    assert journal(loop)[:COUNT] == before
    assert len(journal(loop)) == COUNT + 1
    assert "restored .ralph/db/memory/auth.jsonl" in reported(loop)
    assert [one.iteration_number for one in loop.told()] == list(range(1, COUNT + 2))
    assert len(loop.told("search")) == 1
    assert loop.unfinished == []
    with loop.opened() as ralph:
        assert ralph.store.journals.journal("auth").verify() == (COUNT + 1, [])


def test_an_undamaged_journal_is_not_reported(loop: Loop, tmp_path: Path) -> None:
    play(loop, tmp_path, "echo hello")
    assert loop.facts("journal") == []
    assert loop.unfinished == []


def test_records_that_others_save_meanwhile_stay(loop: Loop, tmp_path: Path) -> None:
    note = "{{ralph}} remember 'The lock is advisory.'"
    play(loop, tmp_path, note, f"rm -r {MEMORY}", note.replace("advisory", "strict"))
    assert len(loop.told()) == COUNT + 1
    saved = "\n".join(path.read_text() for path in (loop.root / MEMORY).glob("*.jsonl"))
    assert saved.count("The lock is strict.") == 1


@pytest.mark.parametrize(
    "command",
    ["git rm -qr .ralph; git commit -qm gone", "git checkout -q HEAD~1", "git stash -q"],
)
def test_what_git_took_away_is_left_and_reported(loop: Loop, tmp_path: Path, command: str) -> None:
    begin_repository(loop)
    (loop.root / "code.txt").write_text("one")
    git(loop, "add", "code.txt")
    git(loop, "commit", "-q", "-m", "one")
    git(loop, "add", "-A")
    if "stash" not in command:
        git(loop, "commit", "-q", "-m", "the plan and the journal")
    loop(scripted(tmp_path, {"steps": [{"bash": command}]}), max_iterations=1)
    assert "not restored .ralph/db/memory/auth.jsonl: 13 lines lost" in reported(loop)
    assert "so nothing was changed there" in reported(loop)
    assert len(journal(loop)) <= 1


@pytest.mark.parametrize("tracked", [True, False])
def test_a_commit_of_the_agent_does_not_hide_what_it_deleted(
    loop: Loop, tmp_path: Path, tracked: bool
) -> None:
    begin_repository(loop)
    (loop.root / "code.txt").write_text("one")
    git(loop, "add", "-A" if tracked else "code.txt")
    git(loop, "commit", "-q", "-m", "one")
    play(loop, tmp_path, f"echo > code.txt; git add -A; git commit -q -m two; rm -r {MEMORY}")
    assert len(loop.told()) == COUNT + 1
    assert "restored" in reported(loop)


@pytest.mark.parametrize(
    "command",
    [
        "git checkout -q -b other",
        "echo two > code.txt; git stash push -q code.txt",
        "echo two > code.txt; git stash -q; git stash drop -q",
        "rm -rf .git",
    ],
)
def test_f1_moves_of_git_do_not_hide_what_an_agent_deleted(
    loop: Loop, tmp_path: Path, command: str
) -> None:
    begin_repository(loop)
    (loop.root / "code.txt").write_text("one")
    git(loop, "add", "-A")
    git(loop, "commit", "-q", "-m", "the plan and the journal")
    play(loop, tmp_path, f"{command}; rm -r {MEMORY}")
    assert len(loop.told()) == COUNT + 1
    assert "restored .ralph/db/memory/auth.jsonl: 13 lines lost" in reported(loop)


def test_f1_an_agent_cannot_forget_through_the_library(loop: Loop, tmp_path: Path) -> None:
    script = tmp_path / "wipe.py"
    script.write_text(
        "from ralph import open_ralph\n"
        "with open_ralph('.') as ralph:\n"
        "    auth = ralph.feature('auth')\n"
        "    auth.forget([hit.id for hit in auth.recent(20)])\n"
    )
    without = "-u RALPH_TASK -u RALPH_FEATURE -u RALPH_PROJECT -u RALPH_STARTED"
    for command in (f"{sys.executable} {script}", f"env {without} {sys.executable} {script}"):
        if sys.platform == "linux" or "env" not in command:
            play(loop, tmp_path, command)
    summaries = [one.summary or "" for one in loop.told()]
    assert sum(summary.startswith("Attempt") for summary in summaries) == COUNT


def test_f1_a_deleted_copy_of_the_journal_is_reported(loop: Loop, tmp_path: Path) -> None:
    with loop.opened() as ralph:
        copies = f"{ralph.project.cache}/runs/*/journal"
    play(loop, tmp_path, f"rm -r {copies} {MEMORY}")
    assert "auth.jsonl could not be checked: its copy in Ralph's home was deleted" in reported(loop)


def test_what_a_person_forgets_meanwhile_stays_forgotten(loop: Loop, tmp_path: Path) -> None:
    def forget_one(event: Any) -> None:
        if event.event == "started":
            with open_ralph(loop.root, embedder="none") as ralph:
                record = ralph.feature("auth").records()[2]
                forget(ralph, choose(ralph, ids=[record.id]))

    loop.on_event = forget_one
    play(loop, tmp_path, f"rm -r {MEMORY}")
    assert len(loop.told()) == COUNT
    assert not any("Attempt 2 at" in line for line in journal(loop))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if b"Attempt 2 at" in path.read_bytes()] == []


def test_a_killed_loop_restores_the_journal_with_the_next_run(loop: Loop, tmp_path: Path) -> None:
    mark = tmp_path / "deleted"
    steps = [{"bash": f"rm -r {MEMORY}; touch {mark}; sleep 60"}]
    words = ["run", "--agent", scripted(tmp_path, {"steps": steps}), "--max-iterations", "1"]
    with ralph_process(words, cwd=loop.root) as process:
        assert eventually(mark.exists)
        process.kill()
    loop(scripted(tmp_path, {"steps": []}), max_iterations=1)
    assert "restored" in reported(loop)
    summaries = [one.summary or "" for one in loop.told()]
    assert [int(text.split()[1]) for text in summaries[:COUNT]] == list(range(COUNT))


# -- faults


def restore_slowly(root: str, copies: str, pause_s: float) -> None:
    replace = os.replace

    def slow(*words: Any, **more: Any) -> None:
        time.sleep(pause_s)
        replace(*words, **more)

    os.replace = slow
    restore_lines(JournalFolder(Path(root)), Path(copies), lambda file, gone: set())


def append_slowly(root: str, worker: int, count: int) -> None:
    journal = JournalFolder(Path(root)).journal("auth")
    for n in range(count):
        journal.append([unnumbered(f"{worker}-{n}")])
        time.sleep(0.01)


@pytest.mark.parametrize("killed", [True, False])
def test_kills_and_writers_in_the_middle_of_a_restore_lose_and_double_nothing(
    tmp_path: Path, killed: bool
) -> None:
    memory, copies = tmp_path / "memory", tmp_path / "copies"
    before = [f"old-{n}" for n in range(50)]
    journals = JournalFolder(memory)
    journals.journal("auth").append([unnumbered(name) for name in before])
    copy_journals(journals, copies)
    shutil.rmtree(memory)
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=append_slowly, args=(str(memory), worker, 20)) for worker in (1, 2)
    ]
    restorer = context.Process(target=restore_slowly, args=(str(memory), str(copies), 0.5))
    for process in (*writers, restorer):
        process.start()
    if killed:
        # Its new file is complete, and not yet in place.
        assert eventually(lambda: bool(list(memory.glob(".auth.jsonl.*.tmp"))))
        restorer.kill()
    for process in (*writers, restorer):
        process.join()
    for _ in range(2):  # the next run does it, and another one changes nothing
        restore_lines(JournalFolder(memory), copies, lambda file, gone: set())
    batch = JournalFolder(memory).journal("auth").read()
    since = [f"{worker}-{n}" for worker in (1, 2) for n in range(20)]
    assert sorted(located.record.source.run or "" for located in batch.records) == sorted(
        [*before, *since]
    )
    assert batch.complaints == ()
