"""`ralph init`, `config`, `trust`, `focus`, `pause`, `resume`, `completion`: set up a project."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import msgspec
from click.shell_completion import get_completion_class

from ralph import trust as trusting
from ralph.clients.setup import look
from ralph.config import (
    KEYS,
    RULES,
    USER_FILE,
    Settings,
    check_key,
    check_value,
    clear,
    has_setting,
    home_folder,
    load,
    store,
)
from ralph.doors.cli import context
from ralph.doors.cli.cards import SHORT_ID, minute
from ralph.doors.cli.main import COMPLETE, Command, wants_json
from ralph.doors.cli.render import Page, Result, Table, confirm, excerpt, is_terminal, picked
from ralph.errors import BadInput, EmbedderOff, NotFound, suggestion
from ralph.index.sync import choose_embedder
from ralph.memory import pausing
from ralph.memory import project as projects
from ralph.memory.store import FEATURES, NOTES, open_journals
from ralph.plan.store import Plan
from ralph.records import clean
from ralph.text.tokens import plural

_EMBEDDERS = ("auto", *get_args(get_type_hints(Settings)["embedder"]))
_OLLAMA_TIMEOUT_S = 0.3  # most people have no Ollama, and should not wait for it
# A session id that is not in memory yet is accepted if it has at least this length.
_SHORTEST_SESSION = 16
_NO_WISHES = "asks for nothing that needs your trust."


# -- init


@click.command(cls=Command)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
@context.choice(
    "--embedder",
    "What computes vectors (default: static). It is tried at once; auto looks for Ollama.",
    _EMBEDDERS,
)
def init(folder: str | None, embedder: str | None) -> Result:
    """Create `.ralph/` in this directory. Safe to run again.

    Existing files are left alone; only --embedder changes a setting of the project.

    \b
    Examples:
      ralph init
      ralph init ~/code/shop --embedder ollama
    """
    root = Path(os.path.abspath(folder or context.start_folder()))  # noqa: PTH100 - links stay links
    home = home_folder()
    project = projects.Project(root, home)
    if os.path.realpath(project.folder) == os.path.realpath(home):
        what = "the .ralph of this directory is Ralph's home, which belongs to no project"
        raise BadInput(what, where=str(root), todo="Choose another directory, or set RALPH_HOME.")
    notes: list[str] = []
    above = None if project.exists else projects.find_project(root.parent, home=home)
    person = is_terminal(sys.stdin) and is_terminal(sys.stdout) and not wants_json()
    offers = embedder is None and person and not project.exists
    if embedder is not None or offers:
        settings = load(home=home, project_file=project.settings_file).settings
        if offers or embedder == "auto":
            embedder = _offer_ollama(settings, notes, person=person)
        if embedder is not None:
            # Compute a vector first, so that an error comes before anything is written.
            settings = msgspec.structs.replace(settings, embedder=embedder)
            if (chosen := choose_embedder(settings, home / "cache")) is not None:
                chosen.check()
    root.mkdir(parents=True, exist_ok=True)
    merged = project.merges_plans()
    created = [file.relative_to(root).as_posix() for file in project.init()]
    if embedder is not None:
        store(project.settings_file, "embedder", embedder, home=home)
    if above is not None:
        notes.append(f"{above.root} above is a project too; from now on this one is used here")

    into = f"embedder is now {embedder}, in {project.settings_file}"
    changed = [] if embedder is None else [into]
    if project.merges_plans() and not merged:
        changed.append("git merges the plan by entries here from now on.")
    nothing = "nothing else" if changed else "nothing"
    lines = [*changed, f"{root} already has a memory; {nothing} was changed."]
    if created:
        lines = [*changed, f"Created in {root}:", *(f"  {name}" for name in created)]
        if any((parent / ".git").exists() for parent in (root, *root.parents)):
            lines.append("Commit .ralph to git, so that the journal goes with the project.")
        hooks = "Next: `ralph hooks install` lets Claude Code and other clients use it."
        plan = "Next: `ralph plan import TODO.md` makes a plan from your list."
        installed = any(place.hooks and place.hooks.calls for place in look(root).places)
        lines.append(plan if installed else hooks)
    value = {"project": str(root), "id": project.id, "made": created, "embedder": embedder}
    return Result(value, lines, notes=notes)


def _offer_ollama(settings: Settings, notes: list[str], *, person: bool) -> str | None:
    """Return "ollama" if it answers and the user wants it; without a terminal, only add a note."""
    from ralph.index.embedders.ollama import Ollama, ollama_wire
    from ralph.wire import Deadline

    if settings.embedder == "ollama":
        return None
    model = settings.ollama_model
    try:
        Ollama(ollama_wire(settings.ollama_url), model).version(Deadline(_OLLAMA_TIMEOUT_S))
    except EmbedderOff as error:
        if error.where is None:  # Ollama answers, but lacks the model
            notes.append(f"Ollama is running, but {error}, then: ralph init --embedder ollama")
        return None
    if not person:
        notes.append(f"Ollama is running with {model}; to use it: ralph init --embedder ollama")
        return None
    wanted = click.confirm(f"Use Ollama ({model}) for embeddings?", default=False)
    return "ollama" if wanted else None


# -- config


def _complete_key(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [key for key in KEYS if key.startswith(incomplete)]


@click.command(cls=Command)
@click.argument("key", required=False, shell_complete=_complete_key)
@click.argument("value", required=False)
@context.flag("--user", "Change it for all projects, not for this one.")
@context.flag("--unset", "Remove it from the file.")
def config(key: str | None, value: str | None, user: bool, unset: bool) -> Result:
    """Show settings and where they come from, or change one.

    KEY shows one setting, KEY VALUE writes it to the project's file.

    \b
    Examples:
      ralph config embedder
      ralph config embedder ollama
      ralph config --user --unset embedder
    """
    if unset and (key is None or value is not None):
        raise click.UsageError("--unset takes a KEY and no VALUE.")
    if user and not (unset or value is not None):
        raise click.UsageError("--user goes with KEY VALUE or with --unset KEY.")
    if key is None or not (unset or value is not None):
        return _settings(key)
    # A project's file never has a personal setting, so there is no need for a project.
    personal = key in RULES and RULES[key].level == "personal"
    if value is not None:
        check_value(key, value)  # where it is stored matters only for a good one
    file = _settings_file(user=user or (unset and personal))
    stored = None
    if unset:
        with _changing(file):
            removed = clear(file, key)
        text = f"{key} is no longer in {file}" if removed else f"{key} was not in {file}"
        if not user and not personal and has_setting(home_folder() / USER_FILE, key):
            text += f"; it is in your own settings: ralph config --user --unset {key}"
    else:
        with _changing(file):
            stored = store(file, key, str(value), home=home_folder())
        text = f"{key} is now {_value_text(stored)}, in {file}"
    notes = [
        f"{origin.origin} takes precedence: {key} is {_value_text(origin.value)} here"
        for origin in context.project_config(optional=True)[1].origins
        if origin.key == key and stored is not None and origin.origin != str(file)
    ]
    return Result({"key": key, "value": stored, "file": str(file)}, text, notes=notes)


def _settings(key: str | None) -> Result:
    if key is not None:
        check_key(key)
    loaded = context.project_config(optional=True)[1]
    # An agent's command may contain a key.
    chosen = [clean(origin) for origin in loaded.origins if key in (None, origin.key)]
    value: Any = [picked(origin, "key", "value", "origin") for origin in chosen]
    rows = [(origin.key, _value_text(origin.value), origin.origin) for origin in chosen]
    notes = [
        f"the project's file asks for {wish.text}; ignored. To see and allow it: ralph trust"
        for wish in loaded.ignored
        if key in (None, wish.name)
    ]
    if key is not None:
        return Result(value[0], _value_text(chosen[0].value), notes=notes)
    return Result(value, Table(("setting", "value", "from"), rows), notes=notes)


def _value_text(value: Any) -> str:
    """Format a value as the user would type it."""
    if value is None:
        return "not set"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _settings_file(*, user: bool) -> Path:
    if user:
        return home_folder() / USER_FILE
    todo = "Run: ralph init, or add --user for all projects."
    return context.the_project(todo=todo).settings_file


@contextlib.contextmanager
def _changing(file: Path) -> Iterator[None]:
    """Change a file of settings; if it is the project's, the guard of a run keeps the change."""
    if file.name == USER_FILE:
        yield
        return
    project = context.the_project()
    with Plan(project.root, state=project.cache).changing_settings():
        yield


# -- trust


@click.command(cls=Command)
@context.flag("--list", "Show the directories you trust.", "listing")
@context.flag("--revoke", "Stop trusting this directory.")
@context.flag("--yes", "Do not ask.")
def trust(listing: bool, revoke: bool, yes: bool) -> Result:
    """Show what a project asks for, and allow it.

    A project's files may come from someone else. Some things take effect only after you have seen
    them here and said yes: settings that start programs, spend money or send data away, MCP servers
    of disciplines, files of another user, and the memory of another directory with the same project
    id. When one of them changes you are asked again. What you set yourself with `ralph config` or
    `ralph discipline` is already trusted.

    \b
    Examples:
      ralph trust
      ralph trust --list
    """
    if listing + revoke + yes > 1:
        raise click.UsageError("Choose one: --list, --revoke or --yes.")
    return _trusted_folders() if listing else _revoke() if revoke else _trust(yes=yes)


def _trust(*, yes: bool) -> Result:
    project = context.the_project(anyones=True)
    home = home_folder()
    asked = projects.wishes_of(project, home=home)
    trusting.trusted_folders(home)  # raises if the list cannot be read, before we ask the user
    waiting = projects.untrusted(project, home=home)
    lines = [f"{project.root} asks for:" if asked else f"{project.root} {_NO_WISHES}"]
    lines += [f"  {'new ' if wish in waiting else '    '} {wish.text}" for wish in asked]
    if asked and not waiting:
        lines.append("You allowed all of it. To take that back: ralph trust --revoke")
    if not wants_json():
        Page().show(lines)
    if waiting and not yes:
        wishes = plural(len(waiting), "request")
        texts = "; ".join(wish.text for wish in waiting)
        problem = (
            f"{wishes} of this project need your approval, and this is not a terminal: {texts}"
        )
        todo = "Check it, then add --yes."
        confirm("allow this", problem=problem, todo=todo, refusal="Nothing was allowed.")
    if waiting:
        trusting.trust(home, project.root, asked)
    wishes_json = [{"kind": w.kind, "name": w.name, "asks": w.text} for w in asked]
    value = {"folder": str(project.root), "wishes": wishes_json}
    return Result(value, f"Trusted: {project.root}" if waiting else "")


def _trusted_folders() -> Result:
    found = sorted(trusting.trusted_folders(home_folder()).items())
    value = [{"folder": f, "at": t.at, "wishes": [*t.wishes.values()]} for f, t in found]
    lines = [
        line
        for folder, trusted in found
        for line in (
            f"{folder}  since {minute(trusted.at)}",
            *(f"  {wish}" for wish in trusted.wishes.values()),
        )
    ]
    return Result(value, lines or "You trust no directory with anything special.")


def _revoke() -> Result:
    home = home_folder()
    project = projects.find_project(context.start_folder(), home=home, anyones=True)
    root = project.root if project else Path(context.start_folder()).absolute()
    gone = trusting.revoke(home, root)
    text = f"No longer trusted: {root}" if gone else f"{root} was not trusted."
    return Result({"folder": str(root), "revoked": gone}, text)


# -- focus

_complete_task = context.completing("tasks")


@click.command(cls=Command)
@click.argument("feature", required=False, shell_complete=context.completing("features"))
@click.argument("task_id", metavar="[TASK]", required=False, shell_complete=_complete_task)
@context.flag("--new", "Accept a feature that neither plan nor memory has yet.", "is_new")
@context.flag("--clear", "Remove the focus.")
def focus(feature: str | None, task_id: str | None, is_new: bool, clear: bool) -> Result:
    """Choose the feature and task your sessions are filed under.

    `ralph record` without --feature uses it. Where there are features, it must be one of them, or
    new. Without arguments, show the focus.

    \b
    Examples:
      ralph focus auth 42
      ralph focus --clear
    """
    if clear and feature is not None:
        raise click.UsageError("--clear cannot be used with a feature.")
    if feature is None and not (context.server_address() or context.found_project()):
        return Result(None, f"No focus here: {context.NO_PLAN}")
    project = context.the_project()
    if clear:
        projects.clear_focus(project)
    elif feature is not None:
        if not is_new and feature.strip():
            _check_feature(project, feature)
            _check_task(feature, task_id)
        projects.set_focus(project, projects.Focus(feature, context.number(task_id)))
    if (now := projects.read_focus(project)) is None:
        text = "No focus now." if clear else "No focus. Set one: ralph focus FEATURE [TASK]"
        return Result(None, text)
    task = "" if now.task_id is None else f", task {now.task_id}"
    return Result({"feature": now.feature, "task_id": now.task_id}, f"Focus: {now.feature}{task}")


def _check_feature(project: projects.Project, feature: str) -> None:
    """Raise if the name is probably mistyped: there are features, but none is called this."""
    names = {entry.name for entry in context.the_plan().read("features").features}
    names |= {
        *open_journals(
            FEATURES, context.project_config()[1].settings, home_folder(), of=project
        ).names()
    }
    names -= {NOTES}
    if names and feature not in names:
        listed = f"Features: {', '.join(sorted(names))}. For a new one add --new."
        todo = suggestion(feature, names) + listed
        raise NotFound(f"no feature {feature!r} in the plan or in memory", todo=todo)


def _check_task(feature: str, task_id: str | None) -> None:
    """Raise if the plan has tasks, but the feature has none with this id."""
    tasks = context.the_plan().read("tasks").tasks if task_id else ()
    own = [str(task.id) for task in tasks if task.feature == feature]
    if tasks and str(context.number(task_id)) not in own:
        todo = f"Its tasks: {excerpt(', '.join(own) or 'none', 200)}"
        raise NotFound(f"{feature} has no task {task_id} in the plan", todo=todo)


# -- pause and resume

_scope_options = context.options(
    context.option(
        "--conversation", "Only this conversation: its id, or the client's session id.", "ID"
    ),
    context.flag("--here", "This directory and all below it, with or without `ralph init`."),
    context.flag("--everywhere", "All projects, and sessions outside projects."),
)


@click.command(cls=Command)
@_scope_options
def pause(conversation: str | None, here: bool, everywhere: bool) -> Result:
    """Stop recording, and stop adding memory to prompts, until `ralph resume`.

    This affects hooks and chat in this project. What is said meanwhile is not imported later
    either. What is in memory stays searchable, and `ralph run` goes on. The setting `pause_folders`
    pauses directories for good, by patterns.

    \b
    Examples:
      ralph pause
      ralph pause --here
    """
    home, scope = _scope(conversation, here, everywhere)
    paused = pausing.pause(home, **scope)
    text = str(paused)
    identity = paused.conversation
    words = " --everywhere" if everywhere else " --here" if here else ""
    words += f" --conversation {identity[:SHORT_ID]}" if identity else ""
    todo = f"To resume: ralph resume{words}"
    return Result(_pause_json(paused), f"{text[0].upper()}{text[1:]}. {todo}")


@click.command(cls=Command)
@_scope_options
def resume(conversation: str | None, here: bool, everywhere: bool) -> Result:
    """Start recording again after `ralph pause`.

    \b
    Examples:
      ralph resume
    """
    home, scope = _scope(conversation, here, everywhere)
    ended = pausing.resume(home, **scope)
    project = None if everywhere or conversation else context.found_project()
    identity = scope.get("conversation", "")
    folder = scope.get("folder", "")
    still = pausing.in_force(home, project or "", identity, folder)
    what = "This project" if "project" in scope else "That"
    text = "Recording again." if ended else f"{what} is not paused."
    if still is not None:
        words = " --here" if still.folder else "" if still.project else " --everywhere"
        text = f"{text[:-1]}, but {still}."
        text += f" To resume: ralph resume{words}" if still.since else ""
    return Result({"resumed": ended is not None, "paused": still and _pause_json(still)}, text)


def _scope(conversation: str | None, here: bool, everywhere: bool) -> tuple[Path, dict[str, Any]]:
    """Return Ralph's home, and the project, conversation or directory to pause (none: all)."""
    home = home_folder()
    if (conversation is not None) + here + everywhere > 1:
        raise click.UsageError("Choose one: --conversation, --here or --everywhere.")
    if here:
        return home, {"folder": os.path.realpath(context.start_folder())}
    if conversation is not None:
        return home, {"conversation": _conversation_id(home, conversation.strip())}
    if everywhere:
        return home, {}
    todo = "Add --here for this directory, or --everywhere."
    return home, {"project": context.the_project(todo=todo)}


def _conversation_id(home: Path, wanted: str) -> str:
    """Return the id of a conversation that is paused or in memory, or of an unknown session."""
    from ralph.memory.conversations import Conversations
    from ralph.recall import CLAUDE_CODE
    from ralph.records.conversation import conversation_id

    session = conversation_id(CLAUDE_CODE, wanted)
    pauses = {p.conversation for p in pausing.read_pauses(home) if p.holds_now and p.conversation}
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
        memory.store.close()


def _pause_json(paused: pausing.Pause) -> dict[str, Any]:
    return {name: value or None for name, value in paused._asdict().items()}


# -- completion


@click.command(cls=Command, json=False)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell completion script.

    \b
    Examples:
      eval "$(ralph completion bash)"     in ~/.bashrc; the same for zsh in ~/.zshrc
      ralph completion fish > ~/.config/fish/completions/ralph.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, "ralph", COMPLETE)
    sys.stdout.write(script.source_template % script.source_vars() + "\n")
