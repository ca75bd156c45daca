"""A newcomer's path: install, one command, then a question about last month's work is answered.

The home has a month-old history of three clients: sessions that the real Claude Code and the real
Gemini CLI made just now, moved back a month, and a recorded one of OpenCode.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from clients import World, client, ralph, worlds
from hooking import roomy
from importing import opencode_folder
from scripted_model import Call, Run, ScriptedModel, Step

if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)

MONTH = timedelta(days=30)
GEMINI_MODEL = "gemini-2.5-pro"
_TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
QUESTION = "how does the shop store prices, and why?"
PRICES = "Prices are stored as integer cents, because floats lose money when they are added up."
MIGRATION = "The migration failed because the users table had no index on email; I added one."


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A scratch world with both clients in it."""
    client("claude")
    client("gemini")
    for world in worlds(tmp_path):
        settings = {
            "model": {"name": GEMINI_MODEL},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        }
        folder = world.home / ".gemini"
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        yield world


def move_back(folder: Path) -> int:
    """Let every session in a folder be a month old; return how many there are."""

    def earlier(found: re.Match[str]) -> str:
        at = datetime.fromisoformat(found[0]) - MONTH
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    files = list(folder.rglob("*.jsonl"))
    for file in files:
        text = file.read_text(encoding="utf-8")
        file.write_text(_TIME.sub(earlier, text), encoding="utf-8")
        at = time.time() - MONTH.total_seconds()
        os.utime(file, (at, at))
    return len(files)


def test_one_command_and_last_months_work_is_known(world: World) -> None:
    shop, site, tools = (world.folder / name for name in ("shop", "site", "tools"))
    for folder in (shop, site, tools):
        folder.mkdir()
    wrote = Call("Write", {"file_path": str(shop / "prices.py"), "content": "CENTS = 100\n"})
    claude = Run(when="Store the prices", steps=(Step(calls=(wrote,)), Step(text=PRICES)))
    gemini = Run(when="Why did the migration", steps=(Step(text=MIGRATION),))
    later = Run(when="how does the shop", steps=(Step(text="I see."),))
    with ScriptedModel(claude, gemini, later) as model:
        world.talk_to(model.url)
        world.environ |= {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model.url, **roomy()}
        words = ["-p", "Store the prices of the shop.", "--allowedTools", "Write"]
        world.run([client("claude"), *words], cwd=shop)
        words = ["--approval-mode", "yolo", "--skip-trust", "-p", "Why did the migration fail?"]
        world.run([client("gemini"), *words], cwd=site)
        opencode_folder(world.home / ".local" / "share", tools)
        assert move_back(world.home / ".claude" / "projects") == 1
        assert move_back(world.home / ".gemini" / "tmp") >= 1

        said = world.run(ralph("hooks", "install", "--user", "--import")).stdout
        world.run([client("claude"), "-p", QUESTION], cwd=shop)
        [asked] = model.asked(2)

    found = "Found 3 earlier sessions in 3 projects on this machine"
    assert f"{found} (Claude Code 1, Gemini CLI 1, OpenCode 1)." in said
    assert "Imported 3 conversations, 3 exchanges" in said
    assert "integer cents, because floats lose money" in asked.shown
    # The person's own search, from any folder: by subject, and by what else was said.
    answer = world.run(ralph("search", "--everywhere", "why did the migration fail?", "--json"))
    [hit, *_] = json.loads(answer.stdout)
    assert hit["record"]["assistant"] == MIGRATION
    day = json.loads(world.run(ralph("today", "--json")).stdout)
    assert [session["project"] for session in day["sessions"]] == ["shop"]
