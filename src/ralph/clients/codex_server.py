"""Starts one MCP server of a config file, in this process's place.

Codex is told its servers on a command line that everybody on the machine can read. So that line
names a file, ours alone, and the server's name in it; the keys stay in the file. Run as a script
with the standard library alone: `python -m ralph.clients.codex_server CONFIG NAME`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ralph.programs import find_program

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def variables(text: str) -> list[str]:
    """The names that a text takes from the environment, as `${NAME}` or `${NAME:-default}`."""
    return list(dict.fromkeys(name for name, _ in _VARIABLE.findall(text)))


def filled(text: str, environ: Mapping[str, str]) -> str:
    """The text with its variables filled in; one that has no value and no default is an error."""

    def value(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        if name in environ:
            return environ[name]
        if default is None:
            raise KeyError(name)
        return default

    return _VARIABLE.sub(value, text)


def main(arguments: list[str]) -> int:
    """Become the server; what it says and how it ends is its own."""
    file, name = arguments
    try:
        entry = json.loads(Path(file).read_text(encoding="utf-8"))["mcpServers"][name]
        inherited = dict(os.environ)
        words = [
            filled(str(word), inherited) for word in (entry["command"], *entry.get("args", ()))
        ]
        given = {key: filled(str(value), inherited) for key, value in entry.get("env", {}).items()}
    except (OSError, ValueError) as error:
        return _refuse(f"{file} cannot be read: {error}")
    except KeyError as error:
        return _refuse(f"the MCP server {name} lacks {error.args[0]}")
    environ = {**inherited, **given}
    program = find_program(words[0], path=environ.get("PATH"))
    if program is None:
        return _refuse(f"the command {words[0]!r} of the MCP server {name} is not there")
    if sys.platform == "win32":  # where a process cannot be replaced by another
        return subprocess.call([program, *words[1:]], env=environ)
    os.execve(program, words, environ)


def _refuse(what: str) -> int:
    sys.stderr.write(f"ralph: {ascii(what)[1:-1]}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
