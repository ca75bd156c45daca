"""Tokens for a server: each allows one scope in one project. Only its hash is stored.

They are records in their own journal, in Ralph's home or in the database if one is set. So every
process of a server knows them, and a revoked token is refused at once.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from ralph.config import Settings
from ralph.errors import BadInput, NotFound
from ralph.journal import Fold
from ralph.memory.store import TOKENS, on_server, open_journals
from ralph.records import Record, now

if TYPE_CHECKING:
    from ralph.journal.session import Watch

Right = Literal["read", "write", "orchestrator", "admin"]
# Each includes those before it.
RIGHTS: tuple[Right, ...] = get_args(Right)
PREFIX = "ralph_"
TOKEN = "token"
_ID_CHARS = 12
_LONGEST_NAME = 80


class Token(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one token allows; `project` is a project's id, `digest` the hash of its secret."""

    id: str
    name: str
    project: str
    right: Right
    digest: str
    created: str
    feature: str | None = None
    expires: str | None = None
    # It belongs to a person, whose word counts as such. Otherwise what it saves is an agent's.
    person: bool = False

    def allows(self, right: Right) -> bool:
        """Return whether it includes this right."""
        return RIGHTS.index(self.right) >= RIGHTS.index(right)

    def is_expired(self) -> bool:
        """Return whether it has expired."""
        end = self.expires
        return end is not None and datetime.fromisoformat(end) <= datetime.now(UTC)


class Tokens:
    """The tokens of one server. Used by one thread at a time."""

    def __init__(self, home: Path, settings: Settings) -> None:
        self._journals = open_journals(TOKENS, settings, home)
        self._server = on_server(self._journals)
        if self._server is not None:
            self._server.link.retry()  # revoking a token must not wait for a pause to end
        self._journal = self._journals.journal(TOKENS)
        self._fold = Fold(self._journal)
        self._watch: Watch | None = None
        # The tokens, and the state of the fold they were read from.
        self._state = (-1, 0)
        self._known: dict[str, Token] = {}

    def create(
        self,
        name: str,
        project: str,
        right: Right,
        *,
        feature: str | None = None,
        days: float | None = None,
        person: bool = False,
    ) -> tuple[Token, str]:
        """Create a token; return it with its secret, which cannot be shown again."""
        name = " ".join(name.split())
        if not 0 < len(name) <= _LONGEST_NAME:
            raise BadInput(f"a token needs a name of at most {_LONGEST_NAME} characters")
        if feature is not None and right not in ("read", "write"):
            raise BadInput(
                f"a token for one feature cannot have the scope {right}",
                todo="Leave out --feature, or use read or write.",
            )
        if days is not None and days <= 0:
            raise BadInput("a token must be valid for more than 0 days")
        secret = f"{PREFIX}{secrets.token_urlsafe(32)}"
        digest = _digest(secret)
        expires = datetime.now(UTC) + timedelta(days=days) if days is not None else None
        token = Token(
            id=digest[:_ID_CHARS],
            name=name,
            project=project,
            right=right,
            digest=digest,
            created=now(),
            feature=feature,
            expires=expires.isoformat() if expires else None,
            person=person,
        )
        body = msgspec.json.encode(token)
        self._journal.append([lambda n: Record(token.id, TOKEN, n, token.created, body)])
        return token, secret

    def list(self) -> list[Token]:
        """Return every token that was not revoked, oldest first."""
        return list(self._by_digest().values())

    def revoke(self, wanted: str) -> Token:
        """Refuse a token from now on, by its id or its name."""
        found = [one for one in self.list() if wanted in (one.id, one.name)]
        if not found:
            raise NotFound(f"there is no token {wanted!r}", todo="`ralph token list` shows them.")
        if len(found) > 1:
            ids = ", ".join(one.id for one in found)
            raise BadInput(f"{len(found)} tokens are called {wanted!r}", todo=f"Use an id: {ids}")
        self._journal.forget([found[0].id], reason="revoked")
        return found[0]

    def find(self, secret: str) -> Token | None:
        """Return the token with this secret, unless it was revoked or has expired."""
        found = self._by_digest().get(_digest(secret))
        return None if found is None or found.is_expired() else found

    def watch(self) -> None:
        """Follow changes by notifications if there is a database, so that most calls need no query.
        This applies to everything in this process that uses the same database."""
        if self._watch is None and self._server is not None:
            self._watch = self._server.link.watch()

    def close(self) -> None:
        """Close connections."""
        if self._watch is not None:
            self._watch.close()
        self._journals.close()

    def _by_digest(self) -> dict[str, Token]:
        """Return the tokens by the hash of their secret; a lookup by hash leaks nothing of it."""
        records = self._fold.records()
        if self._fold.position is None and self._server is not None:
            self._server.server.names()  # raises JournalDown if nothing is known yet
            records = self._fold.records()
        state = self._fold.generation, len(records)
        if state != self._state:
            tokens = (
                msgspec.json.decode(one.record.body, type=Token)
                for one in records
                if one.record.kind == TOKEN
            )
            self._state = state
            self._known = {one.digest: one for one in tokens}
        return self._known


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
