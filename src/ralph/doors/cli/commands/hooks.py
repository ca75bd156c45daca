"""`ralph hooks`: set Ralph up in a client, show where it is set up, and remove it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ralph.clients import CLIENTS, TITLES, client_setup
from ralph.clients.drift import drift_told
from ralph.clients.hook_settings import PLUGIN_FOLDERS, ClaudeCodeSetup, status_line_owner
from ralph.clients.setup import SetupPart, SetupPlace, apply, best_call, look
from ralph.config import USER_FILE, home_folder, store
from ralph.doors.cli import context
from ralph.doors.cli.main import Group, keep_project, server_given
from ralph.doors.cli.render import Page, Result, Span, is_terminal, note, typed_answer
from ralph.errors import JournalDown
from ralph.memory import pausing
from ralph.memory.outbox import Outbox, outbox_files
from ralph.memory.project import PlainFolder
from ralph.memory.servers import ServerLogin, find_login, save_login, server_folders, unbind_folder
from ralph.text.tokens import plural

if TYPE_CHECKING:
    from ralph.memory.past_sessions import ClientHistory

_IMPORT = "ralph conversations import --all"
# Enough of a long history for what is worth knowing of it.
_EXCHANGES_READ = 1500
_STYLES = {"installed": "green", "partly": "yellow", "unreadable": "bold red", "none": "dim"}
_WORDS = {"none": "no", "partly": "in part"}


def _keep_scope(ctx: click.Context, _: click.Parameter, value: str | None) -> bool:
    keep_project(ctx, value or None)
    return value is not None


_scope = context.options(
    context.flag("--user", "Your own settings, for every folder."),
    click.option(
        "--project",
        is_flag=False,
        flag_value="",  # `--project` without a folder
        metavar="[DIR]",
        callback=_keep_scope,
        help="The project's settings, which git shares. This is the default.",
    ),
    context.choice("--agent", "The client.", TITLES, default=next(iter(TITLES)), show_default=True),
)


@click.group(cls=Group)
def hooks() -> None:
    """Let Claude Code, Codex, Gemini CLI, OpenCode and editors use the memory.

    The four get hooks and an MCP server; Cursor, VS Code, Zed and Windsurf get the server. The
    plugin brings Claude Code the same; use one of the two.
    """


@hooks.command(json=False)
@_scope
@context.flag("--no-mcp", "The hooks alone, without the MCP server.")
@context.flag("--statusline", "Show memory in Claude Code's status line, if you have none.")
@click.option(
    "--import/--no-import",
    "imports",
    default=None,
    help="Import earlier sessions without asking, or do not ask.",
)
def install(
    user: bool, project: bool, agent: str, no_mcp: bool, statusline: bool, imports: bool | None
) -> None:
    """Put Ralph into a client's settings.

    With --user it then finds the sessions that every client stored on this machine, and asks
    whether to import them. They stay on this machine.

    Your other settings stay. The previous file is kept once as .bak. Running this again changes
    nothing, or updates what an older Ralph wrote.

    With --server, this folder's memory is on that server from now on: hooks save its sessions
    there, and the client connects to it over HTTP. The token is taken from RALPH_TOKEN and saved in
    Ralph's home.

    \b
    Examples:
      ralph hooks install --user
      ralph hooks install --user --agent codex --import
      ralph hooks install --server https://ralph.example.com/projects/shop
    """
    _need_one_scope(user, project)
    login = _server_login(user, agent)
    setup = client_setup(agent)
    if no_mcp and not setup.has_hooks:
        title = TITLES[agent]
        raise click.UsageError(f"{title} gets the MCP server and nothing else: leave out --no-mcp.")
    if statusline and not (user and agent == ClaudeCodeSetup.agent):
        raise click.UsageError("--statusline is for your own settings of Claude Code: add --user.")
    setup.adds_status_line = statusline
    root = None if user else _folder() if login else context.the_project().root
    call = best_call(root, variables=setup.fills_variables)
    if login is not None:
        call = msgspec.structs.replace(call, url=f"{login.address}/mcp")
    edits = setup.edits(root, call, mcp=not no_mcp)
    done = apply(edits)
    page = Page()
    for edit in edits:
        page.line(f"Written: {edit.file}" if edit in done else f"Already up to date: {edit.file}")
    if login is not None and root is not None:
        before = find_login(home_folder(), root, environment=False)
        if before is not None and before.address == login.address:  # its token is replaced
            Outbox(home_folder(), *login).take_over(before.token)
        save_login(home_folder(), login, root)
        page.line(f"The memory of {root} is on {login.address}")
        page.line(f"{TITLES[agent]} needs the token in its environment: export RALPH_TOKEN=...")
    todo = setup.register(call) if user and not no_mcp else None
    if todo is not None:
        note(f"{agent} is not on the PATH, so the MCP server was not registered. Run: {todo}")
    page.line(f"The client calls: {call.shown}")
    if user and setup.has_hooks:
        home = home_folder()
        if pausing.paused_folders(home) is None:
            store(home / USER_FILE, pausing.SETTING, "[]")
        page.line(
            f"From now on sessions in every folder are saved in {home}. To leave folders out: "
            f"`ralph pause --here`, or `ralph config --user {pausing.SETTING} '[\"~/clients/*\"]'`."
        )
    if user and agent == ClaudeCodeSetup.agent:
        owner = status_line_owner()
        if statusline and owner == "person":
            note("your own status line stays; add the output of `ralph statusline` to it")
        elif not owner:
            page.line("For memory in the status line: ralph hooks install --user --statusline")
    if root is not None and call.words:
        note(
            "these files name a program of this machine, because `ralph` on the PATH (outside the "
            "project) is not this one; before sharing them, put it there and run this again"
        )
    elif root is not None:
        page.line(
            "You can commit these files. The hooks do nothing for people without ralph on the PATH."
        )
    for warning in look(root, [agent]).warnings:
        note(warning)
    if user and setup.has_hooks:
        _start_full(page, agent, imports)


def _start_full(page: Page, agent: str, imports: bool | None) -> None:
    """Offer to import what the clients on this machine have, and show one thing found in it."""
    if context.server_address() is not None:
        return  # then this folder's sessions belong to the server
    from ralph.doors.cli.commands.today import show_highlight
    from ralph.doors.cli.commands.transfer import import_past, session_bar
    from ralph.memory.highlight import best_highlight
    from ralph.memory.newest_work import newest_work
    from ralph.memory.past_sessions import PastSessions

    with context.opened() as ralph:
        with session_bar() as bar:
            past = PastSessions(ralph.conversations.store, progress=bar)
            bar.total = lambda: past.total_bytes
            histories = past.new()
            if histories:
                page.line()
                page.line(_history_text(histories))
                if not _wants_import(imports):
                    page.line(f"To import them: {_IMPORT}")
                    return
                result = import_past(ralph, past)
        if histories:
            page.show(result.view)
            for text in result.notes:
                note(text)
            highlight = best_highlight(ralph, newest_work(ralph, exchanges=_EXCHANGES_READ))
            if highlight is not None:
                page.line()
                show_highlight(page, highlight)
    in_use = set(_clients("user", None))
    for other in past.agents:
        if other != agent and other not in in_use:
            page.line(f"For {TITLES[other]}: ralph hooks install --user --agent {other}")


def _history_text(histories: Sequence[ClientHistory]) -> str:
    """Say how many sessions there are, in how many projects, of which clients."""
    sessions = plural(sum(history.sessions for history in histories), "earlier session")
    projects = plural(len(frozenset().union(*(each.projects for each in histories))), "project")
    clients = ", ".join(f"{history.title} {history.sessions}" for history in histories)
    return f"Found {sessions} in {projects} on this machine ({clients})."


def _wants_import(given: bool | None) -> bool:
    """Return what the option says, else what the person answers; without a terminal, no."""
    if given is not None:
        return given
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        return False
    answer = typed_answer("Import them into memory now? They stay on this machine. [Y/n] ")
    return answer.endswith("\n") and answer.strip().lower() in ("", "y", "yes")


@hooks.command(json=False)
@_scope
@context.flag("--all", "Every client.", "every")
def uninstall(user: bool, project: bool, agent: str, every: bool) -> None:
    """Take Ralph out of a client's settings."""
    _need_one_scope(user, project)
    root = None if user else _root_to_clean()
    page = Page()
    found = False
    for name in _clients("user" if user else "project", root) if every else [agent]:
        setup = client_setup(name)
        for edit in apply(setup.edits(root, None)):
            page.line(f"Removed from {edit.file}" if edit.after else f"Removed {edit.file}")
            found = True
        if user and setup.registered() is not None:
            found = True
            if (todo := setup.unregister()) is None:
                page.line("Removed the MCP server from your own servers")
            else:
                note(f"{name} is not on the PATH, so the MCP server was not removed. Run: {todo}")
    unused = root is not None and not _clients("project", root)
    if root and unused and (address := unbind_folder(home_folder(), root)):
        page.line(f"The memory of {root} is on this machine again; {address} keeps what it has")
        files = outbox_files(home_folder()).values()
        if waiting := sum(one.address == address for calls in files for one in calls):
            what = f"{plural(waiting, 'record')} not sent yet stay in {home_folder() / 'outbox'}"
            note(f"{what}. To send: ralph --server {address} journal deliver")
        found = True
    if not found:
        page.line("Ralph was not set up there.")


@hooks.command()
def status() -> Result:
    """Show where Ralph is set up, and what needs fixing."""
    project = context.found_project()
    root = context.memory_folder().root
    address = server_folders(home_folder()).get(str(root))
    found = look(project.root if project else root if address else None)
    told = [f"{text}. Update Ralph" for text in drift_told(home_folder())]
    found = msgspec.structs.replace(found, warnings=[*found.warnings, *told])
    folder = context.start_folder()
    paused = pausing.in_force(home_folder(), project or "", folder=str(folder))
    saves = pausing.paused_folders(home_folder()) is not None
    outside = f"{folder} is in no Ralph project: hooks"
    lines = {
        f"the memory of {root} is on {address}": address,
        str(paused): paused,
        f"project {found.project}": found.project,
        f"{outside} save its sessions in {home_folder()}": saves,
        f"{outside} stay silent. Run `ralph hooks install --user` to save the sessions of every "
        "folder, or `ralph init` to make this one a project": True,
    }
    line = next(text for text, applies in lines.items() if applies)

    def show(page: Page) -> None:
        page.line(line)
        page.line()
        heads = ("client", "where", "hooks", "MCP", "calls")
        page.table(heads, [_row(place) for place in found.places])

    return Result(found, show, notes=found.warnings)


@hooks.command("plugin-path", json=False)
@click.option(
    "--agent",
    type=click.Choice(list(PLUGIN_FOLDERS)),
    default="claude",
    show_default=True,
    help="The client that the plugin is for.",
)
def plugin_path(agent: str) -> None:
    """Print the folder of a client's plugin.

    \b
    claude plugin marketplace add "$(ralph hooks plugin-path)"
    gemini extensions install "$(ralph hooks plugin-path --agent gemini)"
    """
    click.echo(str(PLUGIN_FOLDERS[agent]))


def _server_login(user: bool, agent: str) -> ServerLogin | None:
    """Return the given server, if any; raise if sessions may not be saved there."""
    given = server_given()
    if given is None:
        return None
    over_http = [client.agent for client in CLIENTS if client.over_http]
    if user or agent not in over_http:
        names = " or ".join(over_http)
        raise click.UsageError(f"--server works for one folder, with --agent {names}.")
    from ralph.memory.remote import RemoteRalph

    login = find_login(home_folder(), _folder(), given=given)
    assert login is not None
    try:
        with RemoteRalph(*login) as there:
            there.call("POST", "/sessions", [])
    except JournalDown as error:
        note(f"set up without checking the token: {error}")
    return login


def _folder() -> Path:
    """Return the folder of the project, or else of the repository, or else this one."""
    return (context.found_project() or PlainFolder(context.start_folder(), home_folder())).root


def _need_one_scope(user: bool, project: bool) -> None:
    if user and project:
        raise click.UsageError("Choose one: --user or --project.")


def _root_to_clean() -> Path:
    """Return the project's folder, or a folder outside projects where Ralph is set up."""
    here = context.start_folder()
    alone = context.found_project() is None and _clients("project", here)
    return here if alone else context.memory_folder().root


def _clients(where: str, root: Path | None) -> list[str]:
    """Return the clients in which Ralph is set up, at least partly."""
    places = [place for place in look(root).places if place.where == where]
    return [p.agent for p in places if any(part.state != "none" for part in p.parts)]


def _row(place: SetupPlace) -> tuple[Span, ...]:
    calls = dict.fromkeys(call.command for part in place.parts for call in part.calls)
    return place.agent, place.where, _shown(place.hooks), _shown(place.mcp), ", ".join(calls)


def _shown(part: SetupPart | None) -> Span:
    state = part.state if part else ""
    return _WORDS.get(state, state), _STYLES.get(state, "yellow")
