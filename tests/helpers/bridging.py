"""Brings one port into a network namespace, over a socket of the file system.

python bridging.py out SOCKET PORT               in the world that has the port
python bridging.py in SOCKET PORT COMMAND...     in the namespace, while the command runs
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

assert sys.platform != "win32"  # which has no such sockets


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _serve(listening: socket.socket, connect: Callable[[], socket.socket]) -> None:
    while True:
        near = listening.accept()[0]
        far = connect()
        for pair in ((near, far), (far, near)):
            threading.Thread(target=_carry, args=pair, daemon=True).start()


def main(words: list[str]) -> int:
    """Carry until the command ends, or for ever."""
    side, path, port, *command = words
    place = ("127.0.0.1", int(port))

    def by_file() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(path)
        return made

    if side == "out":
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(path)
        listening.listen(64)
        _serve(listening, lambda: socket.create_connection(place))
    listening = socket.create_server(place)
    threading.Thread(target=_serve, args=(listening, by_file), daemon=True).start()
    return subprocess.call(command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
