"""The agent programs that Ralph knows: a table, a row each.

A client is one row here and one module beside it, or a package of its own with an entry point in
the group `ralph.clients` that names its row. What its hooks send is converted by a function in a
module of its own, which needs only the standard library: hooks must start fast. For the same reason
importing this package loads no more than the table; `agents` has what is done with clients.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ralph.clients.agents import FULL as FULL
    from ralph.clients.agents import MCP_CONFIG as MCP_CONFIG
    from ralph.clients.agents import AgentCall as AgentCall
    from ralph.clients.agents import AgentPermissions as AgentPermissions
    from ralph.clients.agents import AgentProgram as AgentProgram
    from ralph.clients.agents import Detecting as Detecting
    from ralph.clients.agents import SessionFiles as SessionFiles
    from ralph.clients.agents import agent_command as agent_command
    from ralph.clients.agents import agent_environment as agent_environment
    from ralph.clients.agents import agent_permissions as agent_permissions
    from ralph.clients.agents import agent_variables as agent_variables
    from ralph.clients.agents import client_setup as client_setup
    from ralph.clients.agents import dialect_of as dialect_of
    from ralph.clients.agents import events_on as events_on
    from ralph.clients.agents import expected as expected
    from ralph.clients.agents import found_command as found_command
    from ralph.clients.agents import open_capture as open_capture
    from ralph.clients.agents import output_dialect as output_dialect
    from ralph.clients.agents import own_command as own_command
    from ralph.clients.agents import read as read
    from ralph.clients.agents import review_model as review_model
    from ralph.clients.agents import session_client as session_client
    from ralph.clients.agents import takes_servers as takes_servers
    from ralph.clients.agents import uses_login_shells as uses_login_shells


class Client(NamedTuple):
    """One agent program: its names, and the modules with everything about it.

    `hooks` is the module that converts what its hooks send: `hook_input(event, given)` returns the
    input as Claude Code would send it, or None if there is nothing to do. Without one, the client
    sends what Claude Code sends. `writes_transcript` is false for a client whose hooks send the
    lines of the session instead. `shows_messages`: people see the messages of hooks. `over_http`:
    it can reach an MCP server by its address.
    """

    agent: str  # for --agent and the setting `agent`
    source: str  # in the ids of its conversations
    title: str  # for people
    module: str
    hooks: str = ""
    writes_transcript: bool = True
    shows_messages: bool = False
    over_http: bool = False

    @property
    def program(self) -> AgentProgram:
        """The module, loaded when it is needed."""
        module: AgentProgram = import_module(self.module)
        return module

    def hook_input(self, event: str, given: dict[str, Any]) -> dict[str, Any] | None:
        """Return the input of a hook as Claude Code would send it; None if nothing is to do."""
        if not self.hooks:
            return given
        converted: dict[str, Any] | None = import_module(self.hooks).hook_input(event, given)
        return converted


class ClientTable(dict[str, Client]):
    """Clients by a name. One that is not here is looked for once in the installed packages."""

    def __missing__(self, name: str) -> Client:
        if not load_installed():
            raise KeyError(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        if super().__contains__(name):
            return True
        # An agent may also be a command as a person types it, or not be known yet.
        may_be_client = isinstance(name, str) and name.replace("-", "").isalnum()
        return may_be_client and load_installed() and super().__contains__(name)


CLIENTS = [
    Client(
        agent="claude",
        source="claude-code",
        title="Claude Code",
        module="ralph.clients.claude_code",
        shows_messages=True,
        over_http=True,
    ),
    Client(
        agent="codex",
        source="codex",
        title="Codex",
        module="ralph.clients.codex",
        hooks="ralph.clients.codex_hooks",
        over_http=True,
    ),
    Client(
        agent="gemini",
        source="gemini-cli",
        title="Gemini CLI",
        module="ralph.clients.gemini",
        hooks="ralph.clients.gemini_hooks",
    ),
    Client(
        agent="opencode",
        source="opencode",
        title="OpenCode",
        module="ralph.clients.opencode",
        hooks="ralph.clients.opencode_hooks",
        writes_transcript=False,
    ),
]
BY_AGENT = ClientTable((client.agent, client) for client in CLIENTS)
BY_SOURCE = ClientTable((client.source, client) for client in CLIENTS)
# Editors that get the MCP server and nothing else.
EDITORS = {"cursor": "Cursor", "vscode": "VS Code", "zed": "Zed", "windsurf": "Windsurf"}
TITLES = {client.agent: client.title for client in CLIENTS} | EDITORS
_looked = False


def load_installed() -> bool:
    """Add the clients that other installed packages bring; return whether there are new ones."""
    global _looked
    if _looked:
        return False
    _looked = True
    from ralph.plugins import installed

    known = len(CLIENTS)
    for point in installed("ralph.clients"):
        client: Client = point.load()
        if client.agent in TITLES or client.source in BY_SOURCE:
            from ralph.errors import BadInput

            raise BadInput(f"there are two clients with the name {client.agent!r}")
        CLIENTS.append(client)
        BY_AGENT[client.agent] = client
        BY_SOURCE[client.source] = client
        TITLES[client.agent] = client.title
    return len(CLIENTS) > known


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return getattr(import_module("ralph.clients.agents"), name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
