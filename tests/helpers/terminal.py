"""A real terminal: what a person sees of a program there, and the keys they press."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

LONG_S = 60.0


class Screen:
    """What a person sees of a program in a terminal, and the keys they press."""

    def __init__(self, main: int) -> None:
        self._main = main
        self._rest = ""

    def until(self, wanted: str, *, quiet_s: float = LONG_S) -> str:
        """What is shown up to this; all there is if it does not come before a silence."""
        while wanted not in self._rest:
            ready, _, _ = select.select([self._main], [], [], quiet_s)
            if not ready:
                break
            try:
                self._rest += os.read(self._main, 4096).decode(errors="replace")
            except OSError:  # the other side has gone
                break
        before, found, self._rest = self._rest.partition(wanted)
        return before + found

    def type(self, keys: str) -> None:
        """Press these keys."""
        os.write(self._main, keys.encode())

    def press(self, keys: str, wanted: str) -> str:
        """What is shown up to this once the keys are pressed.

        The line editor does not notice a Ctrl-C that comes before it has begun to wait; a person
        presses the key again.
        """
        seen = ""
        for _ in range(10):
            self.type(keys)
            seen += self.until(wanted, quiet_s=3.0)
            if wanted in seen:
                break
        return seen


@contextlib.contextmanager
def at_terminal(
    words: Sequence[str],
    *,
    cwd: Path,
    program: Sequence[str] = ("-m", "ralph"),
    columns: int = 200,
    rows: int = 24,
    environ: Mapping[str, str] | None = None,
) -> Iterator[tuple[subprocess.Popen[bytes], Screen]]:
    """The command line in a terminal of its own; it is stopped at the end."""
    if sys.platform == "win32":
        raise NotImplementedError
    import fcntl
    import struct
    import termios

    main, other = os.openpty()
    fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    without = {key: value for key, value in os.environ.items() if key not in _OURS}
    with subprocess.Popen(
        [sys.executable, *program, *words],
        cwd=cwd,
        stdin=other,
        stdout=other,
        stderr=other,
        env={**without, "TERM": "xterm-256color", **(environ or {})},
        start_new_session=True,
        preexec_fn=_own_terminal,
    ) as process:
        os.close(other)
        try:
            yield process, Screen(main)
        finally:
            process.kill()
            os.close(main)


# What a person's own environment may say about terminals.
_OURS = {"COLUMNS", "LINES", "PAGER", "LESS", "NO_COLOR"}


def _own_terminal() -> None:
    """Ctrl-C in the terminal reaches the process only if the terminal is its own."""
    if sys.platform != "win32":
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
