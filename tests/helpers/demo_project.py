"""The project of `ralph demo`, with some weeks of work added: enough that every view has rows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ralph.memory import documents, gates
from ralph.memory.ralph import Ralph, open_ralph
from ralph.plan import edit, learnings
from ralph.plan.store import Plan
from ralph.records.conversation import (
    Conversation,
    Exchange,
    Label,
    conversation_id,
    exchange_id,
)
from ralph.records.iteration import Decision

_REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused (localhost:5432)"
_STARTED = "Started the test database first: docker compose up -d db"
_RULE = "From now on, every preview link expires after a day."
# Days ago, feature, task, outcome, summary, errors with their resolution.
_WORK: list[tuple[float, str, str, str, str, list[tuple[str, str | None]]]] = [
    (
        26,
        "feed",
        "Write the Atom feed",
        "success",
        "The feed lists the 20 newest posts.",
        [(_REFUSED, _STARTED)],
    ),
    (
        24,
        "feed",
        "Escape titles in the feed",
        "failure",
        "Titles with & break the XML; escaping them twice did not help.",
        [("xml.etree.ElementTree.ParseError: not well-formed (invalid token)", None)],
    ),
    (
        23,
        "feed",
        "Escape titles in the feed",
        "success",
        "Titles are escaped once, by ElementTree itself.",
        [],
    ),
    (
        17,
        "comments",
        "Store comments",
        "success",
        "Comments are stored in one table, newest first.",
        [(_REFUSED, _STARTED)],
    ),
    (
        15,
        "comments",
        "Hold spam back",
        "partial",
        "Links are counted, but the threshold is a guess.",
        [("AssertionError: expected 3 held comments, got 5", None)],
    ),
    (
        12,
        "comments",
        "Hold spam back",
        "timeout",
        "The test of 10,000 comments did not finish within 300 s.",
        [],
    ),
    (
        11,
        "comments",
        "Hold spam back",
        "success",
        "An index on (post, at) makes the check fast; the test takes 2 s.",
        [(_REFUSED, _STARTED)],
    ),
    (
        6,
        "comments",
        "Show comments below a post",
        "success",
        "Comments are rendered on the server and escaped.",
        [],
    ),
    (
        3,
        "feed",
        "Send ETags for the feed",
        "success",
        "The ETag is the hash of the newest post's time.",
        [],
    ),
    (
        1,
        "comments",
        "Let people delete their comments",
        "partial",
        "Deleting works; the confirmation page is missing.",
        [],
    ),
]
_TALKS: list[tuple[float, str, str, list[tuple[str, str]]]] = [
    (
        8,
        "Pool timeouts under load",
        "claude-code",
        [
            (
                "Why does the connection pool time out under load?",
                "The pool has 5 connections and every request holds two. I raised it to 20 and the "
                "timeouts are gone.",
            ),
            (
                "Should the limit be a setting?",
                "Yes: DB_POOL_SIZE, 20 by default. It is documented in docs/operations.md.",
            ),
        ],
    ),
    (
        2,
        "How should drafts be previewed?",
        "codex",
        [
            (
                "We need previews of drafts without a login. What do you suggest?",
                "Signed links that expire after a day. No session is needed, and a link can be "
                "taken back by changing the key.",
            ),
            (_RULE, "Preview links now expire after a day."),
        ],
    ),
    (
        0.1,
        "Deploy failed: migration lock",
        "claude-code",
        [
            (
                "The deploy hangs at the migration, what is going on?",
                "Another migration holds the advisory lock 42. It belongs to a job that crashed; "
                "after ending it the deploy went through.",
            )
        ],
    ),
]
_GUIDE = """\
# Operations

## Backups

The database is backed up every night at 2:00 to the second disk. Restoring takes ten minutes.

## Deploys

Run `make deploy` on the main branch. Migrations run first and take the advisory lock 42.
"""


def demo_project(folder: Path) -> tuple[Path, Path]:
    """Run the demo and go on from there; the project and the home it was made with."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True)
    subprocess.run(
        [sys.executable, "-m", "ralph", "demo", "--keep"],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(scratch)},
        capture_output=True,
        check=True,
        timeout=120,
    )
    [made] = scratch.glob("ralph-demo-*")
    root, home = folder / "blog", folder / "home"
    shutil.move(made / "project", root)
    shutil.move(made / "home", home)
    with open_ralph(root, home=home) as ralph:
        _plan(ralph)
        _work(ralph)
        _talk(ralph)
        _share(ralph)
    return root, home


def _ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")


def _plan(ralph: Ralph) -> None:
    plan = Plan(ralph.project.root, state=ralph.project.cache)
    texts: dict[str, dict[str, Any]] = {
        "feed": {
            "description": "An Atom feed of the newest posts, for feed readers.",
            "architecture": "src/feed.py makes the XML with ElementTree; the view adds an ETag.",
            "boundaries": "No JSON feed, and no full text of private posts.",
        },
        "comments": {
            "description": "Readers comment on posts; spam is held back until someone looks at it.",
            "architecture": "One table, rendered on the server. src/spam.py scores a comment.",
        },
    }
    for name, patch in texts.items():
        edit.create_feature(plan, name, patch | {"display_name": name.capitalize()})
    edit.create_task(plan, "comments", "Let people delete their comments", {"status": "blocked"})
    edit.create_task(plan, "comments", "Write to people who are answered", {})
    edit.create_task(plan, "feed", "Feeds for tags", {"status": "in_progress"})
    learnings.add(plan, "feed", "ElementTree escapes titles itself.", source="agent", iteration=3)
    learnings.add(plan, "comments", "Start the test database first.", source="auto", iteration=1)
    learnings.add(plan, "comments", "Always sign links with the site key.", source="human")
    learnings.add(plan, "comments", "Never sign links with the site key.", source="agent")


def _work(ralph: Ralph) -> None:
    for n, (ago, feature, task, outcome, summary, errors) in enumerate(_WORK):
        work: dict[str, Any] = {
            "task_title": task,
            "outcome": outcome,
            "summary": summary,
            "errors": [{"message": message, "resolution": fix} for message, fix in errors],
            "decisions": [{"description": "Keep it on the server", "rationale": "no build step"}],
            "files_touched": [
                {"path": f"src/{feature}.py", "action": "modified"},
                {"path": f"tests/test_{feature}.py", "action": "created"},
            ],
            "tokens_used": 21_000 + 7_919 * n,
            "cost_usd": round(0.31 + 0.17 * (n % 5), 2),
            "duration_ms": 84_000 + 31_000 * n,
            "timestamp": _ago(ago),
            "session_id": f"run-{n}",
        }
        ralph.feature(feature).remember(work)
    ralph.remember("The keys of the test shop are in the password manager.", private=True)
    ralph.remember("The staging database resets every night at 3:00.")
    ralph.remember("Never run `make deploy` on a Friday.")
    ralph.remember("Feeds must stay valid for the old reader app.", feature="feed")


def _talk(ralph: Ralph) -> None:
    memory = ralph.conversations
    for n, (ago, title, source, turns) in enumerate(_TALKS):
        name = conversation_id(source, f"session-{n}")
        talk = Conversation(id=name, title=title, source=source, created=_ago(ago))
        exchanges = [
            Exchange(
                id=exchange_id(name, str(m)),
                conversation=name,
                user=asked,
                assistant=answer,
                started=_ago(ago - m / 500),
                completed=_ago(ago - m / 500 - 0.001),
                tokens_used=4_100 * (m + 1),
                cost_usd=0.08,
                decisions=(Decision(asked, source="human"),) if asked == _RULE else (),
            )
            for m, (asked, answer) in enumerate(turns)
        ]
        memory.add(talk, exchanges)
        memory.say(Label(target=name, add=("operations",) if n != 1 else ("drafts",)))
    guide = ralph.project.root / "operations.md"
    guide.write_text(_GUIDE, encoding="utf-8")
    documents.add_documents(memory, [guide], root=ralph.project.root)


def _share(ralph: Ralph) -> None:
    shared = ralph.knowledge
    shared.capture_failure_solution(
        failure_description="The feed is not well-formed when a title has an ampersand.",
        error_message="ParseError: not well-formed (invalid token)",
        solution_steps="Let ElementTree escape the text; never escape it before.",
        technology="python",
    )
    shared.checkpoint(kind="phase_complete")
    # The demo's own run published one, too.
    [pattern] = [one for one in shared.patterns() if "ParseError" in one.problem]
    shared.report_outcome(pattern.id, worked=True, task="4")
    shared.capture_failure_solution(
        failure_description="Tests cannot reach the database.",
        error_message=_REFUSED,
        solution_steps="Start the test database first: docker compose up -d db",
    )
    gates.reject(ralph, 3, "design", "Ask before anything is deleted.", subject="Delete comments")
