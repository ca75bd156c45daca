"""What a server of an embedding model may refuse, and what to do about a slow one."""

from __future__ import annotations

from ralph.errors import EmbedderOff

# Statuses that speak of the texts: one is too long, or they are too many.
UNWANTED = frozenset({400, 413, 422})
SLOW = "Look after the server; if it is only slow, raise embed_query_timeout_s."


class Refused(Exception):
    """The server is well but does not want these texts; others it may want."""

    def __init__(self, error: EmbedderOff) -> None:
        super().__init__(str(error))
        self.error = error
