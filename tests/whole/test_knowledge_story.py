"""The story of `docs/guide-knowledge.md`, with real processes: one project pays, two others do not.

Each project is a folder of its own with its own plan; the agent plays a script and keeps every
prompt that it was given.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commanding import process
from looping import scripted
from places import DOCS

from ralph.config import home_folder
from ralph.recall.patterns import CLOSING, OPENING
from ralph.text.tokens import estimate_tokens

SHOP = """\
# Pipeline
The checks that every change goes through before it is merged: tests against a fresh database.

- [ ] Run the tests against the database in the CI job

# Api
What partners of the shop call to read their orders, over HTTP and with a key of their own.

- [ ] Design the public API for orders
"""
BILLING = """\
# Delivery
Every push builds the billing service, tests it and puts it on a machine where people can try it.

- [ ] Make the CI job run the database tests: the users table must be there
"""
INVOICES = """\
# Partners
Partners of the billing service read invoices and credit notes of their own customers.

- [ ] Design the public API for invoices
"""
FAILURE = "no such table: users"
SOLUTION = "Edited ci.py: +`import migrate`"
FEEDBACK = "Every list must be paged, and the version belongs into the URL"
REVISION = "Cursor pages of at most 100 entries, and /v1/ in front of every path"

MATCHING = re.MULTILINE | re.DOTALL

KEEP = (
    "import sys; from pathlib import Path; folder = Path('../prompts'); "
    "folder.mkdir(exist_ok=True); name = f'{len(list(folder.iterdir())):02}.txt'; "
    "(folder / name).write_text(sys.argv[1], encoding='utf-8')"
)
KEPT = {"bash": f'{{{{python}}}} -c "{KEEP}" {{{{prompt}}}}'}
REPORT = {"mcp": "update_task", "args": {"status": "done", "comment": "The job is green."}}
CHECK = "import sqlite3\nsqlite3.connect('ci.db').execute('select name from users')\n"
MIGRATE = "import sqlite3\nsqlite3.connect('ci.db').execute('create table users (name)')\n"
FAILING = {
    "when": "(?s)^(?!.*Earlier attempts)(?!.*import migrate)",
    "steps": [
        KEPT,
        {"write": "check.py", "content": CHECK},
        {"write": "migrate.py", "content": MIGRATE},
        {"write": "ci.py", "content": "import check\n"},
        {"bash": "{{python}} ci.py"},
    ],
    "result": "The tests fail in CI: the database of the job has no users table.",
}
SOLVING = {
    "when": "no such table: users",
    "steps": [
        KEPT,
        {"bash": "{{python}} ci.py"},
        {"say": "The database of the job is empty, so its migrations have to run first."},
        {"edit": "ci.py", "old": "import check", "new": "import migrate\nimport check"},
        {"bash": "{{python}} ci.py"},
        REPORT,
    ],
    "result": "The CI job migrates first now: the tests find the users table and pass.",
}
# Another project whose agent follows the block.
TOLD = {
    "when": "import migrate",
    "steps": [
        KEPT,
        {"write": "ci.py", "content": "import migrate\nimport check\n"},
        {"say": "I edited ci.py: import migrate before import check."},
        REPORT,
    ],
    "result": "Edited ci.py: import migrate comes before import check, so the job passed.",
}
DILIGENT = {"steps": [KEPT, REPORT], "result": "Done as the plan says."}


def block(prompt: str) -> str:
    """The one block in a prompt, with its delimiters."""
    [found] = re.findall(rf"^{re.escape(OPENING)}$.*?^{re.escape(CLOSING)}$", prompt, MATCHING)
    return str(found)


class Folder:
    """A project in a folder of its own, used as a person would: by commands."""

    def __init__(self, root: Path, plan: str) -> None:
        self.root = root
        self.root.mkdir(parents=True)
        (root / "pyproject.toml").write_text('[project]\nname = "x"\n', encoding="utf-8")
        self.ralph("init")
        (root / "plan.md").write_text(plan, encoding="utf-8")
        self.ralph("plan", "import", "plan.md")

    def ralph(self, *words: str) -> str:
        """What a command prints; it must end well."""
        ran = process(words, cwd=self.root)
        assert ran.returncode == 0, ran
        assert ran.stderr == b"" or words[0] == "prompt", ran
        return ran.stdout.decode()

    def json(self, *words: str) -> Any:
        """What a command prints for programs."""
        return json.loads(self.ralph(*words, "--json"))

    def run(self, *words: str, runs: Sequence[dict[str, Any]]) -> str:
        """The loop with an agent that plays these runs."""
        return self.ralph("run", *words, "--agent", scripted(self.root.parent, *runs))

    @property
    def prompts(self) -> list[str]:
        """What the agents were told, in order."""
        folder = self.root.parent / "prompts"
        return [file.read_text(encoding="utf-8") for file in sorted(folder.iterdir())]


@pytest.fixture
def shop(tmp_path: Path) -> Folder:
    """Project one, which has failed, solved it and come to the end of a phase."""
    shop = Folder(tmp_path / "one" / "shop", SHOP)
    told = shop.run("--feature", "pipeline", runs=[FAILING, SOLVING])
    assert "knowledge: 1 captured\n" in told
    assert "knowledge: 1 published (phase complete)\n" in told
    return shop


def test_one_project_pays_and_another_gets_the_solution_for_free(
    shop: Folder, tmp_path: Path
) -> None:
    assert not any(OPENING in prompt for prompt in shop.prompts)
    [before] = shop.json("knowledge", "patterns")
    assert (before["success_count"], before["worked"], before["failed"]) == (1, 0, 0)

    billing = Folder(tmp_path / "two" / "billing", BILLING)
    told = billing.run(runs=[FAILING, TOLD])

    [prompt] = billing.prompts  # it was enough: the first attempt succeeded
    assert SOLUTION in block(prompt)
    assert FAILURE in block(prompt)
    assert before["id"] not in prompt
    assert "success  iteration 1" in told
    # The loop itself has reported that it helped, for everybody to see.
    [after] = shop.json("knowledge", "patterns")
    assert after["id"] == before["id"]
    assert (after["success_count"], after["worked"], after["failed"]) == (1, 1, 0)
    assert after["success_rate"] == pytest.approx((1 + 1 + 1) / (1 + 1 + 2))


@pytest.mark.slow
def test_what_a_person_rejected_in_one_project_is_told_to_the_agent_of_another(
    shop: Folder, tmp_path: Path
) -> None:
    shop.ralph("gate", "reject", "2", "--type", "design", "--feedback", FEEDBACK)
    assert shop.json("knowledge", "staged") == []  # it waits for the revision
    shop.ralph("gate", "approve", "2", "--type", "design", "--approach", REVISION)
    invoices = Folder(tmp_path / "three" / "invoices", INVOICES)
    assert OPENING not in invoices.ralph("prompt", "1")  # staged is not published
    shop.ralph("knowledge", "checkpoint")

    invoices.run(runs=[DILIGENT])

    [prompt] = invoices.prompts
    assert FEEDBACK in block(prompt)
    assert REVISION in block(prompt)
    assert FAILURE not in prompt


def test_a_prompt_is_shown_with_its_block_and_what_the_block_costs(
    shop: Folder, tmp_path: Path
) -> None:
    billing = Folder(tmp_path / "two" / "billing", BILLING)

    told = billing.json("prompt", "1")

    assert SOLUTION in block(told["text"])
    [section] = [one for one in told["sections"] if one["name"] == "context"]
    assert section["left_out"] is None
    assert section["tokens"] == estimate_tokens(block(told["text"]))


@pytest.mark.slow
def test_a_project_that_wants_none_gets_none_and_one_that_gives_none_keeps_its_own(
    shop: Folder, tmp_path: Path
) -> None:
    billing = Folder(tmp_path / "two" / "billing", BILLING)
    billing.ralph("config", "knowledge_receive", "false")
    billing.ralph("config", "knowledge_give", "false")

    told = billing.run(runs=[FAILING, SOLVING])

    assert len(billing.prompts) == 2  # it had to pay itself
    assert not any(OPENING in prompt for prompt in billing.prompts)
    assert "knowledge:" not in told
    [pattern] = shop.json("knowledge", "patterns")
    assert (pattern["success_count"], pattern["worked"]) == (1, 0)


@pytest.mark.slow
def test_without_its_index_the_same_block_comes_back(shop: Folder, tmp_path: Path) -> None:
    billing = Folder(tmp_path / "two" / "billing", BILLING)
    before = billing.ralph("prompt", "1")

    shutil.rmtree(home_folder() / "cache")

    assert block(billing.ralph("prompt", "1")) == block(before)


def told_in_the_guide() -> tuple[str, list[str]]:
    """The commands of the guide's story as one script, and the lines it says that they print."""
    guide = DOCS / "guide-knowledge.md"
    story = guide.read_text(encoding="utf-8").split("\n## ")[1]
    assert story.startswith("A story to type")
    script = "".join(re.findall(r"^```sh\n(.*?)^```$", story, MATCHING))
    shown = "".join(re.findall(r"^```text\n(.*?)^```$", story, MATCHING))
    return script, [line for line in shown.splitlines() if line]


@pytest.mark.skipif(sys.platform == "win32", reason="the guide's commands are for a POSIX shell")
def test_the_story_of_the_guide_typed_as_it_stands(tmp_path: Path) -> None:
    script, shown = told_in_the_guide()
    own = str(Path(sys.executable).parent)
    ran = subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": os.pathsep.join([own, os.environ["PATH"]])},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert ran.returncode == 0, ran
    printed = ran.stdout.splitlines()
    assert len(shown) > 10
    for line in shown:
        assert any(line in one for one in printed), line
    assert f"{OPENING}\n" in ran.stdout
    assert ran.stdout.count(OPENING) == 2
