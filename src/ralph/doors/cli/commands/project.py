"""`ralph init`, `focus`, `pause`, `resume` and `completion`: set up a project."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ralph.doors.cli import context
from ralph.doors.cli.cards import SHORT_ID
from ralph.doors.cli.main import Command, wants_json
from ralph.doors.cli.render import Page, Result, is_terminal
from ralph.errors import BadInput, EmbedderOff, NotFound

if TYPE_CHECKING:
    from ralph.config import Settings
    from ralph.memory.pausing import Pause
    from ralph.memory.project import Project

_EMBEDDERS = ("auto", "static", "minilm", "ollama", "openai", "none")
_OLLAMA_TIMEOUT_S = 0.3  # most people have no Ollama, and should not wait for it
# A session that memory has nothing of yet is accepted by a name of at least this length.
_SHORTEST_SESSION = 16
_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_RALPH_COMPLETE"


# -- init


@click.command(cls=Command)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
@click.option(
    "--embedder",
    type=click.Choice(_EMBEDDERS),
    help="What computes vectors (default: static). It is tried at once; auto looks for Ollama.",
)
def init(folder: str | None, embedder: str | None) -> Result:
    """Create `.ralph/` in this directory. Safe to run again.

    Existing files are left alone; only --embedder changes a setting of the project.

    \b
    Examples:
      ralph init
      ralph init ~/work/shop --embedder ollama
    """
    from ralph.config import home_folder, load, store
    from ralph.memory.project import Project, find_project

    root = Path(os.path.abspath(folder or context.start_folder()))  # noqa: PTH100 - links stay links
    home = home_folder()
    project = Project(root, home)
    if os.path.realpath(project.folder) == os.path.realpath(home):
        raise BadInput(
            "the .ralph of this directory is Ralph's home, which belongs to no project",
            where=str(root),
            todo="Choose another directory, or set RALPH_HOME.",
        )
    notes: list[str] = []
    above = None if project.exists else find_project(root.parent, home=home)
    person = is_terminal(sys.stdin) and is_terminal(sys.stdout) and not wants_json()
    offers = embedder is None and person and not project.exists
    if embedder is not None or offers:
        settings = load(home=home, project_file=project.settings_file).settings
        if offers or embedder == "auto":
            embedder = _offer_ollama(settings, notes, person=person)
        if embedder is not None:
            _try(settings, embedder, home)
    root.mkdir(parents=True, exist_ok=True)
    created = [file.relative_to(root).as_posix() for file in project.init()]
    if embedder is not None:
        store(project.settings_file, "embedder", embedder, home=home)
    if above is not None:
        notes.append(f"{above.root} above is a project too; from now on this one is used here")

    def show(page: Page) -> None:
        if embedder is not None:
            page.line(f"embedder is now {embedder}, in {project.settings_file}")
        if not created:
            nothing = "nothing else" if embedder is not None else "nothing"
            page.line(f"{root} already has a memory; {nothing} was changed.")
            return
        page.line(f"Created in {root}:")
        for name in created:
            page.line(name, indent=2)
        page.line("Commit .ralph to git, so that the journal goes with the project.")

    value = {"project": str(root), "id": project.id, "made": created, "embedder": embedder}
    return Result(value, show, notes=notes)


def _offer_ollama(settings: Settings, notes: list[str], *, person: bool) -> str | None:
    """Ollama, if it answers and the person wants it; without a person, a note says how."""
    from ralph.index.embedders.ollama import Ollama, ollama_wire
    from ralph.wire import Deadline

    if settings.embedder == "ollama":
        return None
    model = settings.ollama_model
    try:
        Ollama(ollama_wire(settings.ollama_url), model).version(Deadline(_OLLAMA_TIMEOUT_S))
    except EmbedderOff as error:
        if error.where is None:  # it is there, its model is not
            notes.append(f"Ollama is running, but {error}, then: ralph init --embedder ollama")
        return None
    if not person:
        notes.append(f"Ollama is running with {model}; to use it: ralph init --embedder ollama")
        return None
    wanted = click.confirm(f"Use Ollama ({model}) for embeddings?", default=False)
    return "ollama" if wanted else None


def _try(settings: Settings, embedder: str, home: Path) -> None:
    """Compute a vector with it; EmbedderOff says what is missing, before anything is written."""
    import msgspec

    from ralph.index.sync import choose_embedder

    chosen = choose_embedder(msgspec.structs.replace(settings, embedder=embedder), home / "cache")
    if chosen is not None:
        chosen.check()


# -- focus


@click.command(cls=Command)
@click.argument("feature", required=False, shell_complete=context.completing("features"))
@click.argument(
    "task_id", required=False, metavar="[TASK]", shell_complete=context.completing("tasks")
)
@context.flag("--clear", "Remove the focus.")
def focus(feature: str | None, task_id: str | None, clear: bool) -> Result:
    """Choose the feature and task your sessions are filed under.

    `ralph record` without --feature uses it. The feature need not be in the plan. Without
    arguments, show the focus.

    \b
    Examples:
      ralph focus auth 42
      ralph focus --clear
    """
    from ralph.memory.project import Focus, clear_focus, read_focus, set_focus

    if clear and feature is not None:
        raise click.UsageError("--clear cannot be used with a feature.")
    project = context.the_project()
    if clear:
        clear_focus(project)
    elif feature is not None:
        set_focus(project, Focus(feature, context.number(task_id)))
    now = read_focus(project)
    if now is None:
        text = "No focus now." if clear else "No focus. Set one: ralph focus FEATURE [TASK]"
        return Result(None, text)
    task = "" if now.task_id is None else f", task {now.task_id}"
    return Result({"feature": now.feature, "task_id": now.task_id}, f"Focus: {now.feature}{task}")


# -- pause and resume

_scope_options = context.options(
    context.option(
        "--conversation", "Only this conversation: its id, or the client's session id.", "ID"
    ),
    context.flag("--everywhere", "All projects, and sessions outside projects."),
)


@click.command(cls=Command)
@_scope_options
def pause(conversation: str | None, everywhere: bool) -> Result:
    """Stop recording, and stop adding memory to prompts, until `ralph resume`.

    This affects hooks and chat in this project. What is said meanwhile is not imported later
    either. What is in memory stays searchable, and `ralph run` goes on.

    \b
    Examples:
      ralph pause
      ralph pause --everywhere
    """
    from ralph.memory import pausing

    home, project, identity = _scope(conversation, everywhere)
    paused = pausing.pause(home, project=project, conversation=identity)
    text = str(paused)
    words = ["ralph resume"]
    words += ["--everywhere"] if everywhere else []
    words += [f"--conversation {identity[:SHORT_ID]}"] if identity else []
    return Result(_pause_json(paused), f"{text[0].upper()}{text[1:]}. To resume: {' '.join(words)}")


@click.command(cls=Command)
@_scope_options
def resume(conversation: str | None, everywhere: bool) -> Result:
    """Start recording again after `ralph pause`.

    \b
    Examples:
      ralph resume
    """
    from ralph.memory import pausing

    home, project, identity = _scope(conversation, everywhere)
    ended = pausing.resume(home, project=project, conversation=identity)
    still = pausing.in_force(home, project.id if project else "", identity)
    text = "Recording again." if ended else "There was no such pause."
    if still is not None:
        text += f" But {still}; `ralph resume --everywhere` ends that."
    return Result({"resumed": ended is not None, "paused": still and _pause_json(still)}, text)


def _scope(conversation: str | None, everywhere: bool) -> tuple[Path, Project | None, str]:
    """Ralph's home, and the project or conversation to pause; neither means everything."""
    from ralph.config import home_folder

    home = home_folder()
    if conversation is not None and everywhere:
        raise click.UsageError("--conversation cannot be used with --everywhere.")
    if everywhere:
        return home, None, ""
    if conversation is not None:
        return home, None, _conversation_id(home, conversation.strip())
    return home, context.the_project(), ""


def _conversation_id(home: Path, wanted: str) -> str:
    """The id of a conversation that is paused or in memory, or of a session that is neither."""
    from ralph.config import load
    from ralph.memory.conversation_history import CLAUDE_CODE
    from ralph.memory.conversations import Conversations
    from ralph.memory.pausing import read_pauses
    from ralph.records.conversation import conversation_id

    session = conversation_id(CLAUDE_CODE, wanted)
    pauses = {p.conversation for p in read_pauses(home) if p.holds_now and p.conversation}
    paused = [i for i in pauses if i == session or i.startswith(wanted.lower() or "-")]
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


def _pause_json(paused: Pause) -> dict[str, Any]:
    return {name: value or None for name, value in paused._asdict().items()}


# -- completion


@click.command(cls=Command, json=False)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell completion script.

    \b
    Examples:
      eval "$(ralph completion bash)"     in ~/.bashrc; the same for zsh in ~/.zshrc
      ralph completion fish > ~/.config/fish/completions/ralph.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"There is no completion for {shell}.")
    script = kind(context.find_root().command, {}, "ralph", _VARIABLE)
    sys.stdout.write(script.source_template % script.source_vars() + "\n")
