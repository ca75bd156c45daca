"""The journals of knowledge as the index follows them: one series, of what checkpoints cover."""

from __future__ import annotations

import msgspec

from ralph.journal import Batch
from ralph.memories.ledger import Account, Ledger
from ralph.record import Located, Tombstone


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """How far one project's journal was read, and how many of its slots were given."""

    journal: str
    slots: int


class _Position(msgspec.Struct, frozen=True):
    places: dict[str, _Place]
    done: bool


_decode = msgspec.json.Decoder(_Position).decode
_encode = msgspec.json.Encoder(order="deterministic").encode


class Published:
    """The published entries that are indexed, project by project, each once, in the order of
    publication."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def read(self, position: str | None = None, *, limit: int | None = None) -> Batch:
        """What was published behind the position, at most `limit` entries."""
        accounts = self._ledger.accounts()
        places = _known(position)
        stones: list[Tombstone] = []
        # Where a journal is gone, or no longer begins with what was read, all is read again.
        restarted = position is not None and places is None
        if places is not None:
            restarted = not places.keys() <= {one.name for one in accounts}
            for account in accounts:
                if not restarted and account.name in places:
                    news = account.journal.read(places[account.name].journal)
                    # What was forgotten may have kept another telling of its pattern out.
                    restarted = news.restarted or bool(news.tombstones)
        if restarted:
            places = {}
            stones = [stone for one in accounts for stone in one.journal.read().tombstones]
        return self._from(accounts, places or {}, stones, limit, restarted)

    def unchanged(self, position: str | None) -> bool:
        """Whether nothing can have been published since the position."""
        at = _read(position)
        if at is None or not at.done:
            return False
        accounts = self._ledger.journals()
        return accounts.keys() == at.places.keys() and all(
            journal.unchanged(at.places[name].journal) for name, journal in accounts.items()
        )

    def _from(
        self,
        accounts: list[Account],
        places: dict[str, _Place],
        stones: list[Tombstone],
        limit: int | None,
        restarted: bool,
    ) -> Batch:
        history = self._ledger.history()
        records: list[Located] = []
        reached: dict[str, _Place] = {}
        done = True
        for account in accounts:
            start = places[account.name].slots if account.name in places else 0
            end = len(account.slots)
            if limit is not None:
                end = min(end, start + limit - len(records))
            for slot in account.slots[start:end]:
                record = account.entries.get(slot.entry)
                if record is not None and history.tells(slot):
                    records.append(Located(record, account.name, 0))
            done = done and end == len(account.slots)
            reached[account.name] = _Place(account.position, end)
        position = _encode(_Position(reached, done)).decode()
        return Batch(tuple(records), tuple(stones), (), position, restarted, done)


def _read(position: str | None) -> _Position | None:
    try:
        return None if position is None else _decode(position)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _known(position: str | None) -> dict[str, _Place] | None:
    at = _read(position)
    return None if at is None else at.places
