"""The table of clients: every row has a module that offers everything, and nothing is mixed up."""

from __future__ import annotations

import pytest

from ralph.clients import (
    CLIENTS,
    AgentCall,
    AgentProgram,
    Client,
    claude_code,
    codex,
    dialect_of,
    gemini,
    open_capture,
    opencode,
)

# The type checker compares the modules with the port.
PROGRAMS: tuple[AgentProgram, ...] = (claude_code, codex, gemini, opencode)

clients = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: str(client.agent))


def test_every_module_has_its_row() -> None:
    assert tuple(client.program for client in CLIENTS) == PROGRAMS
    for names in ([c.agent for c in CLIENTS], [c.source for c in CLIENTS]):
        assert len(set(names)) == len(names)
    dialects = [dialect for program in PROGRAMS for dialect in program.DIALECTS]
    assert len(set(dialects)) == len(dialects)


@clients
def test_a_client_keeps_the_port(client: Client) -> None:
    program = client.program

    assert program.command(AgentCall())[0] == client.agent
    assert program.variables(AgentCall(), {}) == {}
    for dialect in program.DIALECTS:
        capture = open_capture(dialect)
        capture.feed(b"noise\n")
        assert capture.finish().dialect == dialect
        assert capture.complaints
    sessions = program.sessions()
    assert sessions.session_folder({}).is_absolute()
    setup = program.setup()
    assert {place.agent for place in setup.places(None)} == {client.agent}
    assert any(place.hooks for place in setup.places(None)) == setup.has_hooks


@pytest.mark.parametrize(
    ("event", "dialect"),
    [
        ({"type": "system", "subtype": "init"}, "stream-json"),
        ({"type": "user", "sessionId": "s"}, "transcript"),
        ({"type": "item.completed"}, "codex"),
        ({"type": "init", "session_id": "s", "timestamp": "t"}, "gemini"),
        ({"type": "text", "timestamp": 1, "sessionID": "s", "part": {}}, "opencode"),
        ({"type": "session_meta"}, None),
        ({"type": 7}, None),
        ({}, None),
    ],
)
def test_an_event_belongs_to_one_dialect(event: dict[str, object], dialect: str | None) -> None:
    assert dialect_of(event) == dialect
