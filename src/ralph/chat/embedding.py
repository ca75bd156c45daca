"""The embedding pipeline: it brings the index up to the journal, batch by batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ralph.chat.indexed import behind, price_per_char
from ralph.chat.retrying import Retries
from ralph.chat.summarising import open_backlog, settings_state
from ralph.chat.working import Backlog, Board
from ralph.errors import EmbedderOff, MemoryOff
from ralph.memory.ralph import Ralph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

# Under this key stands that the embedder failed; what it failed at are the passages that wait.
KEY = "embedding"
# Between the text of a question and what was answered, in a text to embed.
_ASIDE = "\x1e"
_BUSY = "another process is building the index"


class Batches:
    """The embedder as the pipeline uses it: no more at once than a batch, and watched.

    Where `careful`, a text that fails alone while others do not gets no direction, is found by
    words alone, and is told of in `refused`: it shall not stand in the way of all that follow.
    """

    def __init__(
        self, inner: Any, size: int, *, stop: Callable[[], bool], begun: Callable[[int], None]
    ) -> None:
        self._inner = inner
        self._size = size
        self._stop = stop
        self._begun = begun
        self.careful = False
        self.chars = 0
        self.refused: dict[str, str] = {}
        self._whole: dict[str, str] = {}

    @property
    def identity(self) -> str:
        return str(self._inner.identity)

    @property
    def title(self) -> str:
        return str(self._inner.title)

    @property
    def dims(self) -> int:
        return int(self._inner.dims)

    @property
    def batch(self) -> int:
        """As the settings have it."""
        return self._size

    def check(self) -> None:
        """Try it now."""
        self._inner.check()

    def pieces(self, text: str) -> Sequence[str]:
        """The text in parts; where careful, it is remembered whose they are."""
        parts: Sequence[str] = self._inner.pieces(text)
        if self.careful:
            self._whole.update(dict.fromkeys(parts, text))
        return parts

    def embed_query(self, text: str) -> Any:
        """One vector, soon."""
        return self._inner.embed_query(text)

    def embed_passages(self, texts: Sequence[str], *, budget_s: float | None = None) -> Any:
        """A whole batch or EmbedderOff."""
        if self._stop():
            raise EmbedderOff("the pipeline is stopping")
        self._begun(len(texts))
        made = self._carefully(texts) if self.careful else self._inner.embed_passages(texts)
        self.chars += sum(map(len, texts))
        return made

    def _carefully(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        try:
            made: Vectors = self._inner.embed_passages(texts)
        except EmbedderOff as error:
            self._inner.check()  # or it is the embedder after all, and no text of ours
            if len(texts) > 1:
                half = len(texts) // 2
                parts = self._carefully(texts[:half]), self._carefully(texts[half:])
                return np.concatenate(parts)
            self.refused[self._whole.get(texts[0], texts[0])] = str(error)
            return np.zeros((1, self.dims), dtype=np.float32)
        return made


class EmbeddingPipeline:
    """Brings one stream's index up to its journal; what fails is tried again later."""

    def __init__(self, open_memory: Callable[[], Ralph], retries: Retries) -> None:
        self._open = open_memory
        self._retries = retries
        self._held: tuple[Ralph, Backlog, object] | None = None
        self._stop = threading.Event()
        self._board: Board | None = None

    @property
    def poll_s(self) -> float:
        """How long to rest when nothing calls."""
        return self._memory().shelf.settings.embedding_pipeline_poll_interval_s

    @property
    def next_at(self) -> float | None:
        """When what failed may be tried again."""
        return self._retries.next_at(KEY)

    def hurry(self) -> None:
        """Rest no longer because of what failed: nothing is kept of it here."""

    def close(self) -> None:
        """Let go of files."""
        if self._held is not None:
            self._held[1].close()
            self._held[0].close()
            self._held = None

    def work(self, board: Board, stop: threading.Event) -> None:
        """Embed what the journal has and the index lacks."""
        self._board, self._stop = board, stop
        memory = self._memory()
        batches = memory.shelf.embedder
        if not memory.exist:
            board.set(total=board.look().completed, note="")
            return
        before = behind(memory)
        board.set(total=board.look().completed + before.count, note=_note(memory))
        self._drop_stale(memory)
        failing = self._retries.entries(KEY).get(KEY)
        if failing and failing.given_up and before.count > failing.count:
            self._retries.passed([KEY])  # there is more to do now than what was given up
            failing = None
        if before.current:
            self._retries.passed([KEY])
        if before.current or self._retries.rests(failing):
            return
        most = memory.shelf.settings.embedding_max_retries
        board.set(state="running")
        if isinstance(batches, Batches):
            batches.careful = failing is not None and failing.attempts >= most
            batches.chars = 0
        trouble = self._sync(memory, batches, again=failing is not None)
        after = behind(memory)
        left = after.count
        cost = (price_per_char(memory.shelf.settings) or 0.0) * getattr(batches, "chars", 0)
        board.done(after.done_since(before), cost)
        board.set(total=board.look().completed + left)
        if isinstance(batches, Batches) and batches.refused:
            self._give_up(memory, batches, board, attempts=most + 1)
        if stop.is_set():
            return
        if trouble is None:
            self._retries.passed([KEY])
            return
        board.set(note=trouble)
        if trouble == _BUSY:
            return  # it is being done
        failing = self._retries.failed(KEY, KEY, KEY, trouble, most=most, count=left)
        if failing.given_up:
            board.set(failed=board.look().failed + left)

    def _sync(self, memory: Backlog, batches: Any, *, again: bool) -> str | None:
        """What stood in the way."""
        try:
            if again and batches is not None:
                batches.check()  # a server that failed is else left alone for a while
            synced = memory.sync()
        except MemoryOff as error:
            return str(error)
        if synced.embedder_off:
            return synced.embedder_off
        return None if synced.complete else _BUSY

    def _drop_stale(self, memory: Backlog) -> None:
        """Forget failures of what was forgotten."""
        items = self._retries.entries(KEY).keys() - {KEY}
        if items:
            self._retries.passed(items - memory.history.records.keys())

    def _give_up(self, memory: Backlog, batches: Batches, board: Board, *, attempts: int) -> None:
        """Note which records hold what the embedder cannot make anything of."""
        cut = memory.target().cut
        for record in memory.history.records.values():
            parts = {part for one in cut(record) for part in one.embed.split(_ASIDE)}
            for text in parts & batches.refused.keys():
                self._retries.give_up(KEY, [record.id], batches.refused[text], attempts=attempts)
                board.set(failed=board.look().failed + 1)
        batches.refused.clear()

    def _memory(self) -> Backlog:
        if self._held is not None and self._held[2] != settings_state(self._held[0]):
            self.close()
        if self._held is None:
            ralph = self._open()
            memory = open_backlog(ralph)
            if memory.shelf.embedder is not None:
                memory.shelf.embedder = Batches(
                    memory.shelf.embedder,
                    memory.shelf.settings.embedding_batch_size,
                    stop=lambda: self._stop.is_set(),
                    begun=self._batch_begun,
                )
            self._held = ralph, memory, settings_state(ralph)
        return self._held[1]

    def _batch_begun(self, count: int) -> None:
        if self._board is not None:
            self._board.set(current=f"batch of {count}")


def _note(memory: Backlog) -> str:
    if memory.shelf.embedder is None:
        return "the setting embedder is none: everything is found by words alone"
    return ""
