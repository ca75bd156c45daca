"""`ralph pause` and `ralph resume`: say that nothing is kept for now, and that it is again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli.cards import SHORT_ID
from ralph.doors.cli.context import as_json, the_project
from ralph.doors.cli.render import Page, print_json
from ralph.doors.cli.tree import Command

if TYPE_CHECKING:
    from ralph.memory.pausing import Pause
    from ralph.memory.project import Project

_conversation = click.option(
    "--conversation",
    metavar="ID",
    help="Only this conversation: its id, or the client's name for the session.",
)
_everywhere = click.option("--everywhere", is_flag=True, help="All projects, and what has none.")
# As short as a client's name for a session may be that memory has nothing of yet.
_SHORTEST_SESSION = 16


@click.command(cls=Command)
@_conversation
@_everywhere
@as_json
def pause(conversation: str | None, everywhere: bool, as_json: bool) -> None:
    """Keep nothing of what is said from now on, and tell nothing.

    In this project, unless said otherwise. Until `ralph resume`, hooks and chat neither capture nor
    inject, and what is said meanwhile never comes in later, by an import neither. What was kept
    before stays and can be searched. `ralph run` goes on as ever.
    """
    from ralph.memory import pausing

    home, project, one = _scope(conversation, everywhere)
    held = pausing.pause(home, project=project, conversation=one)
    if as_json:
        print_json(_json(held))
        return
    told = str(held)
    words = ["ralph resume"]
    words += ["--everywhere"] if everywhere else []
    words += [f"--conversation {one[:SHORT_ID]}"] if one else []
    Page().line(f"{told[0].upper()}{told[1:]}. To go on: {' '.join(words)}")


@click.command(cls=Command)
@_conversation
@_everywhere
@as_json
def resume(conversation: str | None, everywhere: bool, as_json: bool) -> None:
    """Keep what is said again, after `ralph pause`."""
    from ralph.memory import pausing

    home, project, one = _scope(conversation, everywhere)
    ended = pausing.resume(home, project=project, conversation=one)
    still = pausing.in_force(home, project.id if project else "", one)
    if as_json:
        print_json({"resumed": ended is not None, "paused": _json(still) if still else None})
        return
    page = Page()
    page.line("Memory goes on." if ended else "There was no such pause.")
    if still is not None:
        page.line(f"But {still}; `ralph resume --everywhere` ends that.")


def _scope(conversation: str | None, everywhere: bool) -> tuple[Path, Project | None, str]:
    """Ralph's home, and the project or the conversation that is meant; neither is everything."""
    from ralph.config import home_folder

    home = home_folder()
    if conversation is not None and everywhere:
        raise click.UsageError("--conversation and --everywhere exclude each other.")
    if everywhere:
        return home, None, ""
    if conversation is not None:
        return home, None, _named(home, conversation.strip())
    return home, the_project(), ""


def _named(home: Path, wanted: str) -> str:
    """The id of a conversation that is paused or kept, or of a session that is neither yet."""
    from ralph.config import load
    from ralph.errors import NotFound
    from ralph.memory.conversation_history import CLAUDE_CODE
    from ralph.memory.conversations import Conversations
    from ralph.memory.pausing import read_pauses
    from ralph.records.conversation import conversation_id

    session = conversation_id(CLAUDE_CODE, wanted)
    held = {one.conversation for one in read_pauses(home) if one.holds_now and one.conversation}
    paused = [one for one in held if one == session or one.startswith(wanted.lower() or "-")]
    if len(paused) == 1:
        return paused[0]
    memory = Conversations(home=home, settings=load(home=home).settings, embedder=None)
    try:
        return memory.conversation(wanted, everywhere=True).id
    except NotFound:
        if len(wanted) < _SHORTEST_SESSION:
            raise
        return session
    finally:
        memory.close()


def _json(one: Pause) -> dict[str, Any]:
    plain: dict[str, Any] = one._asdict()
    return {name: value or None for name, value in plain.items()}
