"""What the tests of tool moments share: sessions that teach something, and tool calls."""

from __future__ import annotations

from pathlib import Path

from hooking import Hooked, Session

from ralph import disk
from ralph.memory.moments_table import MomentRow, read_table, table_file

# As the client sets it while a person is at it.
ATTENDED = {"CLAUDE_CODE_SESSION_ATTENDED": "1"}
HEADLESS = {"CLAUDE_CODE_SESSION_ATTENDED": "0"}
UNKNOWN = "Exit code 2\nerror: unrecognized subcommand 'bun'\n\nUsage: rtk [OPTIONS] <COMMAND>"


def wrong_then_right(
    project: Path, folder: Path, wrong: str, output: str, right: str, *, began: str
) -> Session:
    """A whole session in which a command fails, and another one passes in its place."""
    session = Session(project, folder, began=began)
    session.prompts("Run the tests, please")
    session.runs(wrong, output, failed=True)
    session.runs(right, "12 pass\n0 fail")
    session.says("All 12 tests pass.")
    session.hook("stop", last_assistant_message="All 12 tests pass.")
    session.hook("session-end", reason="other")
    return session


def two_sessions_with_rtk(project: Path, folder: Path) -> None:
    """The same wrong call in two sessions."""
    for day in ("02", "03"):
        wrong_then_right(
            project,
            folder,
            "rtk bun run test",
            UNKNOWN,
            "bun run test",
            began=f"2026-11-{day}T10:00:00Z",
        )


def about_to_run(
    session: Session, command: str, environ: dict[str, str] | None = None, **fields: object
) -> Hooked:
    """The hook before a command."""
    return session.hook(
        "pre-tool-use",
        environ={**ATTENDED, **(environ or {})},
        hook_event_name="PreToolUse",
        tool_name="Bash",
        tool_input={"command": command},
        **fields,
    )


def about_to_open(
    session: Session, path: str, tool: str = "Read", environ: dict[str, str] | None = None
) -> Hooked:
    """The hook before a file is read or changed."""
    return session.hook(
        "pre-tool-use",
        environ={**ATTENDED, **(environ or {})},
        hook_event_name="PreToolUse",
        tool_name=tool,
        tool_input={"file_path": str(session.project / path)},
    )


def table(project: Path) -> list[MomentRow]:
    """The rows of a project's table."""
    return read_table(table_file(str(project), disk.home()))
