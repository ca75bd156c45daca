"""Which folders have their memory on a server, and the tokens for it.

Both are in `servers.json` in Ralph's home, which only its owner can read. Only a person's commands
write it: `ralph hooks install --server` and `ralph run`. A project's files can neither name a
server nor get a token. Hooks read it first of all, so this imports only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ralph import disk
from ralph.current_run import PROJECT
from ralph.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

FILE = "servers.json"
ADDRESS = "RALPH_SERVER"
TOKEN = "RALPH_TOKEN"
_LOCK_TIMEOUT_S = 5.0
_Servers = dict[str, dict[str, str]]


class ServerLogin(NamedTuple):
    """The address of a project on a server, and the token for it."""

    address: str
    token: str

    def __repr__(self) -> str:
        """The address without the token."""
        return f"<ServerLogin {self.address}>"


def server_folders(home: str | os.PathLike[str]) -> dict[str, str]:
    """The folders whose memory is on a server, each with the server's address."""
    return _read(home)["folders"]


def find_login(
    home: str | os.PathLike[str],
    root: str | os.PathLike[str],
    *,
    given: str | None = None,
    environment: bool = True,
) -> ServerLogin | None:
    """The server that was given, else the environment's, else the one saved for the folder.

    The token in the environment is used only for a server named by `given` or the environment.
    Without one, an agent's tools use the token of their run.
    """
    named = given or (os.environ.get(ADDRESS) if environment else None)
    saved = _read(home)
    if named:
        address = named.rstrip("/")
        of_run = saved["tokens"].get(f"{address} {os.environ.get(PROJECT)}")
        token = os.environ.get(TOKEN, "").strip() or of_run or saved["tokens"].get(address, "")
        return ServerLogin(address, token)
    found = saved["folders"].get(os.path.realpath(root))
    return None if found is None else ServerLogin(found, saved["tokens"].get(found, ""))


def save_login(home: Path, login: ServerLogin, root: Path) -> None:
    """Bind a folder to a server, and save the token: hooks do not get it any other way."""
    with _editing(home) as servers:
        servers["tokens"][login.address] = login.token
        servers["folders"][os.path.realpath(root)] = login.address


def save_run_token(home: Path, login: ServerLogin, root: str) -> None:
    """Save the token of a run for the agent's tools; bound folders keep the token they have."""
    with _editing(home) as servers:
        servers["tokens"][f"{login.address} {root}"] = login.token


def unbind_folder(home: Path, root: Path) -> str | None:
    """Unbind a folder; returns the server's address, or None if the folder was not bound.

    A token that no other folder needs is deleted, too.
    """
    if os.path.realpath(root) not in server_folders(home):
        return None
    with _editing(home) as servers:
        address = servers["folders"].pop(os.path.realpath(root), None)
        servers["tokens"].pop(f"{address} {root}", None)
        if address is not None and address not in servers["folders"].values():
            servers["tokens"].pop(address, None)
        return address


def _read(home: str | os.PathLike[str]) -> _Servers:
    file = os.path.join(home, FILE)  # noqa: PTH118 - a hook does not wait for pathlib
    try:
        plain = json.loads(disk.read(file))
        return {key: {str(k): str(v) for k, v in plain[key].items()} for key in _EMPTY}
    except FileNotFoundError:
        return {key: {} for key in _EMPTY}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        # The error does not quote the file: that could show a token.
        todo = "Delete it, then run `ralph hooks install --server URL` in each folder again."
        raise BadInput("this list of servers cannot be read", where=file, todo=todo) from None


_EMPTY = ("folders", "tokens")


@contextlib.contextmanager
def _editing(home: Path) -> Iterator[_Servers]:
    file = home / FILE
    disk.make_folder(home)
    busy = BadInput("another process is changing it", where=str(file), todo="Try again.")
    with disk.lock(home / f"{FILE}.lock", timeout_s=_LOCK_TIMEOUT_S, busy=busy):
        servers = _read(home)
        yield servers
        data = json.dumps({"version": 1, **servers}, indent=2).encode() + b"\n"
        disk.replace(file, data, mode=0o600)
