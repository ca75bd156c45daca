"""A real PostgreSQL server for benchmarks and tests: Debian's programs on a loopback port. It ends
with the process that started it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import SkipTest

from ralph.errors import RalphError

USER = "ralph"
PASSWORD = "not-a-secret"
_READY = "database system is ready to accept connections"
_START_TIMEOUT_S = 60.0


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs, the newest if there are several."""
    places = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda place: int(place.parent.name) if place.parent.name.isdigit() else 0,
        reverse=True,
    )
    found = shutil.which("postgres")
    if found:
        places.append(Path(found).resolve().parent)
    return next((place for place in places if (place / "initdb").exists()), None)


def why_not() -> str | None:
    """Return why no server can be started here; None if one can."""
    if programs() is None:
        return "PostgreSQL's programs are not there"
    if _other_user() and shutil.which("setpriv") is None:
        return "setpriv is not there, and root may not run PostgreSQL"
    return None


class Server:
    """One server with its own folder, port and process."""

    def __init__(self, folder: Path, bin_folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self._bin = bin_folder
        self._data = folder / "data"
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        # PostgreSQL refuses to run as root.
        self._user = _other_user()

    def init(self) -> None:
        """Create the cluster."""
        password = self.folder / "password"
        password.write_text(PASSWORD, encoding="utf-8")
        self.folder.chmod(0o700)
        if self._user:
            for path in (self.folder, password):
                shutil.chown(path, self._user, _group_of(self._user))
        subprocess.run(
            [
                *self._under(),
                str(self._bin / "initdb"),
                *("--no-sync", "--encoding", "UTF8", "--locale", "C", "--username", USER),
                *("--auth", "scram-sha-256", "--pwfile", str(password)),
                *("--pgdata", str(self._data)),
            ],
            check=True,
            capture_output=True,
            cwd=self.folder,
        )

    def start(self) -> None:
        """Start it, and return when it accepts connections."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            "full_page_writes": "off",
            "max_connections": "60",
            "logging_collector": "off",
            "log_min_messages": "warning",
            "shared_buffers": "16MB",
        }
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(
            [*self._under(), str(self._bin / "postgres"), "-D", str(self._data), *given],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=self.folder,
        )
        said: list[str] = []
        ready = threading.Event()
        stderr = self._process.stderr
        assert stderr is not None

        def listen() -> None:
            for line in stderr:
                said.append(line)
                if _READY in line:
                    ready.set()
            ready.set()  # it ended

        self._listener = threading.Thread(target=listen, daemon=True)
        self._listener.start()
        assert ready.wait(_START_TIMEOUT_S), "".join(said)
        assert self._process.poll() is None, "".join(said)

    def stop(self, *, at_once: bool = False) -> None:
        """Stop it: connections get an error first, or with `at_once` they are just cut."""
        if self._process is None:
            return
        if sys.platform == "win32":
            self._process.terminate()
        else:
            self._process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
        self._process.wait(timeout=60)
        if self._listener is not None:
            self._listener.join(60)  # it reads what is closed next
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._process = None

    def freeze(self) -> None:
        """Freeze all of its processes: it accepts connections, but never answers."""
        self._signal_all("SIGSTOP")

    def thaw(self) -> None:
        """Let its processes continue."""
        self._signal_all("SIGCONT")

    @property
    def url(self) -> str:
        """The address of its first database."""
        return self.url_of("postgres")

    def url_of(self, database: str, *, password: str = PASSWORD, port: int | None = None) -> str:
        """The address of one of its databases."""
        return f"postgresql://{USER}:{password}@127.0.0.1:{port or self.port}/{database}"

    def _signal_all(self, name: str) -> None:
        if sys.platform == "win32":
            raise SkipTest("processes cannot be stopped here")
        assert self._process is not None
        main = self._process.pid
        children = Path(f"/proc/{main}/task/{main}/children")
        if not children.exists():
            raise SkipTest("a process does not tell its children here")
        for pid in [main, *map(int, children.read_text().split())]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, getattr(signal, name))

    def _under(self) -> list[str]:
        # The server must not outlive tests that were killed.
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            return []
        command = [setpriv, "--pdeathsig", "QUIT"]
        if self._user:
            group = _group_of(self._user)
            command += ["--reuid", self._user, "--regid", group, "--clear-groups"]
        return [*command, "--"]


@contextlib.contextmanager
def own_server() -> Iterator[Server]:
    """Run a server that may be stopped and started again; it is removed when the block ends."""
    if why := why_not():
        raise RalphError(why, todo="Install PostgreSQL, for example: apt install postgresql")
    found = programs()
    assert found is not None
    # Not below the tests' folder, which only its owner may enter.
    folder = Path(tempfile.mkdtemp(prefix="ralph-pg-"))
    server = Server(folder, found)
    try:
        server.init()
        server.start()
        yield server
    finally:
        server.stop(at_once=True)
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _other_user() -> str | None:
    if sys.platform == "win32" or os.geteuid() != 0:
        return None
    import pwd

    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


def _group_of(user: str) -> str:
    if sys.platform == "win32":
        return ""
    import grp
    import pwd

    return grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name
