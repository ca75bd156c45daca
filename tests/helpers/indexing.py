"""What the tests of the embedded index share."""

from __future__ import annotations

from ralph.index.sync import Index
from ralph.memory.ralph import Ralph


def embedded(memory: Ralph) -> Index:
    """The index in a file that a memory has where nobody asks for another."""
    index = memory.store.index
    assert isinstance(index, Index)
    return index
