"""The real Codex in a scratch world, beside a model that plays a script."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
import scripted_model
from clients import World, loopback_only
from scripted_model import Request, Run

# Nobody else is in its network.
PORT = 8000
CONFIG = f"""\
model = "gpt-5.5"
model_provider = "scripted"
# Else it asks the model without the servers that took a second to start.
mcp_optional_startup_grace_ms = 60000
[model_providers.scripted]
name = "scripted"
base_url = "http://127.0.0.1:{PORT}/v1"
wire_api = "responses"
# What it would ask the network for while it starts and ends.
[features]
plugins = false
[analytics]
enabled = false
"""
# Its sandbox makes this folder for itself wherever it is told to put temporary files.
SANDBOX = Path("/tmp/codex-daemon-0")
MAKEFILE = """\
*** Begin Patch
*** Add File: Makefile
+export:
+\tmkdir -p build
*** End Patch
"""


if sys.platform == "win32":
    pytest.skip("the clients are driven as processes are on POSIX", allow_module_level=True)


class Codex:
    """Codex in a scratch world, with a model that plays this script."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._log = world.folder / "requests.jsonl"
        home = world.home / ".codex"
        home.mkdir()
        (home / "config.toml").write_text(CONFIG, encoding="utf-8")

    def playing(self, *runs: Run) -> list[str]:
        """The beginning of a command line that is run beside the model."""
        script = self.world.folder / "script.json"
        script.write_bytes(msgspec.json.encode(runs))
        words = ["--port", str(PORT), "--script", str(script), "--log", str(self._log), "--"]
        return [*loopback_only(), sys.executable, str(scripted_model.__file__), *words]

    def asked(self, run: int) -> list[Request]:
        """What the model was asked in one run of the script."""
        lines = self._log.read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=Request) for line in lines]
        return [one for one in found if one.run == run]
