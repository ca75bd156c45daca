"""What the benches read from their command line alike, and how they tell how far they are."""

from __future__ import annotations

import sys
import time

from bench.ground import Tell
from ralph.errors import BadInput


def sizes_of(text: str, *, example: str) -> list[int]:
    """The numbers that commas separate; BadInput when there is none, or one is not positive."""
    try:
        sizes = [int(one.replace("_", "")) for one in text.split(",") if one.strip()]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise BadInput(f"--sizes cannot be {text!r}", todo=f"Give numbers, as in {example}.")
    return sizes


def teller() -> Tell:
    """Tells on stderr, with the seconds since it was made."""
    begin = time.monotonic()

    def tell(text: str) -> None:
        sys.stderr.write(f"[{time.monotonic() - begin:6.1f} s] {text}\n")
        sys.stderr.flush()

    return tell
