"""`ralph token`: manage who may use a project's memory over the network."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ralph.doors.cli import context
from ralph.doors.cli.main import Group
from ralph.doors.cli.render import Result, Table, picked
from ralph.errors import BadInput
from ralph.memory.tokens import RIGHTS, Right, Token, Tokens

if TYPE_CHECKING:
    from ralph.memory.project import Project

_DAYS = re.compile(r"([1-9][0-9]{0,4})d?")
_FIELDS = ("id", "name", "project", "right", "feature", "person", "created", "expires")


@click.group(cls=Group)
def token() -> None:
    """Create, list and revoke tokens for `ralph serve`.

    Each token is for one project. Only a hash of it is stored.
    """


@token.command()
@click.argument("name")
@context.choice("--scope", "What it may do; each includes those before it.", RIGHTS, required=True)
@context.option("--feature", "Only this feature and the project's notes.", "NAME")
@context.flag("--person", "It is a person's: notes and learnings saved with it are a person's.")
@context.option("--expires", "Days until it expires (default: never).", "DAYS")
def create(
    name: str, scope: Right, feature: str | None, person: bool, expires: str | None
) -> Result:
    """Create a token for this project and print it once.

    `read` searches, `write` also saves and works on the plan, `orchestrator` also uses knowledge of
    all projects, `admin` also forgets. Without --person, everything saved with the token counts as
    an agent's, and it cannot review learnings.

    \b
    Examples:
      ralph token create ci --scope read --expires 90d
      ralph token create agent --scope write --feature auth
      ralph token create ana --scope write --person
    """
    with _tokens() as (tokens, project):
        made, secret = tokens.create(
            name, project.id, scope, feature=feature, days=_days_in(expires), person=person
        )

    todo = f"Copy it now: it is not shown again. To revoke it: ralph token revoke {made.id}"
    return Result({**_token_json(made), "token": secret}, [secret, todo])


@token.command(name="list")
def list_() -> Result:
    """List the tokens of all projects, without their secrets.

    \b
    Examples:
      ralph token list --json
    """
    with _tokens() as (tokens, project):
        found = tokens.list()
    return Result([_token_json(one) for one in found], _tokens_table(found, project.id))


@token.command()
@click.argument("wanted", metavar="ID|NAME")
def revoke(wanted: str) -> Result:
    """Revoke a token: the server refuses it from now on.

    \b
    Examples:
      ralph token revoke ci
    """
    with _tokens() as (tokens, _):
        gone = tokens.revoke(wanted)
    return Result(_token_json(gone), f"Revoked {gone.id} ({gone.name}).")


@contextlib.contextmanager
def _tokens() -> Iterator[tuple[Tokens, Project]]:
    project, config, home = context.project_config()
    assert project is not None
    with contextlib.closing(Tokens(home, config.settings)) as tokens:
        yield tokens, project


def _days_in(text: str | None) -> float | None:
    if text is None:
        return None
    if (found := _DAYS.fullmatch(text)) is None:
        raise BadInput(f"--expires is a number of days, not {text!r}", todo="For example: 90d")
    return float(found.group(1))


def _token_json(one: Token) -> dict[str, object]:
    fields = picked(one, *_FIELDS)
    fields["scope"] = fields.pop("right")
    return {**fields, "expired": one.is_expired()}


def _tokens_table(found: list[Token], own: str) -> Table:
    rows = [
        [
            *(one.id, one.name, one.right, "person" if one.person else "agent"),
            "this" if one.project == own else one.project[:8],
            one.feature or "",
            "expired" if one.is_expired() else (one.expires or "never")[:10],
        ]
        for one in found
    ]
    empty = "There are no tokens. Create one: ralph token create NAME --scope read"
    return Table(["id", "name", "scope", "of", "project", "feature", "expires"], rows, empty)
