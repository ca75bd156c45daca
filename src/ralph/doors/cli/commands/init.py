"""`ralph init`: a project's memory, made here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralph.doors.cli.context import as_json, start_folder
from ralph.doors.cli.render import Page, is_terminal, note, print_json
from ralph.doors.cli.tree import Command

if TYPE_CHECKING:
    from ralph.config import Settings

_EMBEDDERS = ("auto", "static", "minilm", "ollama", "openai", "none")
# Nobody waits for a server he may not have.
_LOOK_S = 0.3


@click.command(cls=Command)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
@click.option(
    "--embedder",
    type=click.Choice(_EMBEDDERS),
    help="What makes vectors; it is tried at once. auto looks for an Ollama to offer.",
)
@as_json
def init(folder: str | None, embedder: str | None, as_json: bool) -> None:
    """Make a project's memory here.

    Nothing that is there is changed, so it may be run again at any time. Only --embedder changes
    a setting of the project.
    """
    from ralph.config import home_folder, load, store
    from ralph.errors import BadInput
    from ralph.memory.project import Project, find_project

    root = Path(os.path.abspath(folder or start_folder()))  # noqa: PTH100 - links stay links
    home = home_folder()
    project = Project(root, home)
    if os.path.realpath(project.folder) == os.path.realpath(home):
        raise BadInput(
            "this folder's .ralph is the home of what belongs to no project",
            where=str(root),
            todo="Choose a project's folder, or set RALPH_HOME.",
        )
    above = None if project.exists else find_project(root.parent, home=home)
    person = is_terminal(sys.stdin) and is_terminal(sys.stdout) and not as_json
    if embedder == "auto" or (embedder is None and person and not project.exists):
        settings = load(home=home, project_file=project.settings_file).settings
        embedder = _offered(settings, person=person)
    if embedder is not None:
        settings = load(home=home, project_file=project.settings_file).settings
        _try(settings, embedder, home)
    root.mkdir(parents=True, exist_ok=True)
    made = [file.relative_to(root).as_posix() for file in project.init()]
    if embedder is not None:
        store(project.settings_file, "embedder", embedder, home=home)
    if above is not None:
        note(f"{above.root} above is a project too; here this one is used from now on")
    if as_json:
        print_json({"project": str(root), "id": project.id, "made": made, "embedder": embedder})
        return
    page = Page()
    if embedder is not None:
        page.line(f"embedder is {embedder} now, in {project.settings_file}")
    if not made:
        rest = "nothing else" if embedder is not None else "nothing"
        page.line(f"{root} has a memory already; {rest} was changed.")
        return
    page.line(f"Made in {root}:")
    for name in made:
        page.line(name, indent=2)
    page.line("Commit .ralph to git: the journal is meant to travel with the project.")


def _offered(settings: Settings, *, person: bool) -> str | None:
    """Ollama, if it answers and a person wants it; where nobody can be asked, a line tells how."""
    from ralph.errors import EmbedderOff
    from ralph.index.embedders.ollama import Ollama, ollama_wire
    from ralph.wire import Deadline

    if settings.embedder == "ollama":
        return None
    model = settings.ollama_model
    try:
        Ollama(ollama_wire(settings.ollama_url), model).version(Deadline(_LOOK_S))
    except EmbedderOff as error:
        if error.where is None:  # it is there, its model is not
            note(f"Ollama is here, but {error}, then: ralph init --embedder ollama")
        return None
    if not person:
        note(f"Ollama is here and has {model}; to use it: ralph init --embedder ollama")
        return None
    wanted = click.confirm(f"Use Ollama ({model}) for embeddings?", default=False)
    return "ollama" if wanted else None


def _try(settings: Settings, embedder: str, home: Path) -> None:
    """Make a vector with it; EmbedderOff says what is missing, before anything is written."""
    import msgspec

    from ralph.index.embedders import choose_embedder

    chosen = choose_embedder(msgspec.structs.replace(settings, embedder=embedder), home / "cache")
    if chosen is not None:
        chosen.check()
