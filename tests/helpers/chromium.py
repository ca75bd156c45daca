"""A real browser for the tests of the page: Chromium, driven over HTTP by its own ChromeDriver.

Debian has both (`chromium`, `chromium-driver`). Without them the tests are skipped, unless
RALPH_REQUIRE_CHROMIUM=1 says that they must be there. The driver's protocol is WebDriver: JSON over
HTTP, so no package is needed for it.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

if os.name == "nt":
    pytest.skip("the browser is driven as processes are on POSIX", allow_module_level=True)

REQUIRED = os.environ.get("RALPH_REQUIRE_CHROMIUM") == "1"
CLIENTS = Path(os.environ.get("RALPH_CLIENTS") or ROOT / ".clients").absolute()
AXE = CLIENTS / "node_modules" / "axe-core" / "axe.min.js"
# For the slowest machine; nothing waits for it to pass.
PATIENCE_S = 60
DESKTOP, PHONE = (1280, 860), (390, 844)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_PORT = re.compile(r"successfully on port (\d+)")
_AXE_RUN = """
const done = arguments[arguments.length - 1];
const options = {resultTypes: ["violations"]};
if (arguments[0].length) options.runOnly = {type: "rule", values: arguments[0]};
axe.run(document, options).then(
  (found) => done(found.violations.map((one) => ({
    rule: one.id, impact: one.impact, nodes: one.nodes.map((node) => node.html + " " +
      node.any.map((check) => check.message).join("; ")),
  }))),
  (error) => done([{rule: String(error), impact: "critical", nodes: []}]));
"""


def missing(what: str, todo: str) -> None:
    """Leave the test: it cannot be made here, and that is a failure where it must be."""
    if REQUIRED:
        pytest.fail(f"{what}, and RALPH_REQUIRE_CHROMIUM=1 wants it. {todo}", pytrace=False)
    pytest.skip(f"{what}. {todo}")


class DriverError(Exception):
    """ChromeDriver refused a command."""


class Chromium:
    """One browser window."""

    def __init__(self, driver: str, options: dict[str, Any]) -> None:
        self._url = driver
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "ignore",
            "timeouts": {"script": PATIENCE_S * 1000, "pageLoad": PATIENCE_S * 1000},
        }
        made = self._ask("POST", "/session", capabilities={"alwaysMatch": wanted})
        self._url = f"{driver}/session/{made['sessionId']}"
        self._server = ""
        # Where the page is on that server: it is bound to a path of its own.
        self._root = ""

    def _ask(self, method: str, path: str, **body: Any) -> Any:
        data = json.dumps(body).encode() if method == "POST" else None
        request = urllib.request.Request(self._url + path, data, method=method)
        request.add_header("content-type", "application/json")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=2 * PATIENCE_S) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                told = json.load(error)["value"]
            raise DriverError(f"{told['error']}: {told['message']}") from None

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(OSError, DriverError):
            self._ask("DELETE", "")

    # -- where it is

    def enter(self, port: int, path: str) -> None:
        """Come in by the address that `ralph ui` opens."""
        self._server = f"http://127.0.0.1:{port}"
        self._root = self._server
        self.open(path)
        self._root += self.path.rstrip("/")

    def open(self, path: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self._ask("POST", "/url", url=self._root + path)

    @property
    def path(self) -> str:
        """The path and question of the page it is on."""
        return str(self._ask("GET", "/url")).removeprefix(self._root)

    # -- what it shows

    def script(self, code: str, *values: Any) -> Any:
        """What a piece of JavaScript returns; the page's own policy does not bind it."""
        return self._ask("POST", "/execute/sync", script=code, args=list(values))

    def text(self, selector: str = "main") -> str:
        """What a reader sees in the first element that fits."""
        return str(self.script("return document.querySelector(arguments[0]).innerText", selector))

    def count(self, selector: str) -> int:
        """How many elements fit."""
        return int(self.script("return document.querySelectorAll(arguments[0]).length", selector))

    def console(self) -> list[str]:
        """What the console said since it was asked last: errors and warnings."""
        found = self._ask("POST", "/se/log", type="browser")
        return [f"{one['level']}: {one['message']}" for one in found if one["level"] != "INFO"]

    def elsewhere(self) -> list[str]:
        """What this page fetched from anywhere but its own server."""
        code = "return performance.getEntriesByType('resource').map((one) => one.name)"
        return [one for one in self.script(code) if not one.startswith(self._server + "/")]

    def wait(self, code: str, *values: Any) -> Any:
        """Wait until a piece of JavaScript returns something true, and return it."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with contextlib.suppress(DriverError):  # the page was just left
                if found := self.script(code, *values):
                    return found
            threading.Event().wait(0.05)
        pytest.fail(f"never true: {code} {values}; on {self.path}:\n{self.text('body')[:2000]}")

    # -- what a person does

    def _find(self, selector: str) -> str:
        found = self._ask("POST", "/element", using="css selector", value=selector)
        return str(found[_ELEMENT])

    def click(self, selector: str) -> None:
        """Click on the first element that fits, as a mouse does."""
        self._ask("POST", f"/element/{self._find(selector)}/click")

    def follow(self, selector: str) -> None:
        """Click on something that leads to another page, and wait for that."""
        self.script("window.left = false; window.old = true")
        self.click(selector)
        self.wait("return !window.old && document.readyState === 'complete'")

    def type(self, selector: str, text: str) -> None:
        """Replace what a field has."""
        element = self._find(selector)
        self._ask("POST", f"/element/{element}/clear")
        self._ask("POST", f"/element/{element}/value", text=text)

    def press(self, keys: str) -> None:
        """Type keys where the focus is."""
        focus = self._ask("GET", "/element/active")[_ELEMENT]
        self._ask("POST", f"/element/{focus}/value", text=keys)

    def hover(self, selector: str) -> None:
        """Move the mouse onto an element."""
        origin = {_ELEMENT: self._find(selector)}
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": origin}
        self._ask("POST", "/actions", actions=[{"type": "pointer", "id": "m", "actions": [move]}])

    # -- how it looks

    def _devtools(self, command: str, **values: Any) -> Any:
        return self._ask("POST", "/goog/cdp/execute", cmd=command, params=values)

    def look(self, size: tuple[int, int] = DESKTOP, *, dark: bool = False) -> None:
        """Be a screen of this size, light or dark, from the next page on."""
        width, height = size
        self._devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        """Write what the window shows; `whole` is the page to its end, up to some screens."""
        clip = {}
        if whole:
            code = "const e = document.documentElement; return [e.clientWidth, e.scrollHeight]"
            width, height = self.script(code)
            box = {"x": 0, "y": 0, "width": width, "height": min(height, 4000), "scale": 1}
            clip = {"clip": box, "captureBeyondViewport": True}
        taken = self._devtools("Page.captureScreenshot", format="png", **clip)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(base64.b64decode(taken["data"]))

    def violations(self, *rules: str) -> list[str]:
        """What axe-core finds that is serious or worse, by all rules or by these."""
        if not AXE.exists():
            missing(f"axe-core is not in {CLIENTS}", "Run: scripts/clients")
        self.script(AXE.read_text(encoding="utf-8"))
        found = self._ask("POST", "/execute/async", script=_AXE_RUN, args=[rules])
        return [
            f"{self.path}: {one['rule']} ({one['impact']}): {one['nodes'][:3]}"
            for one in found
            if one["impact"] in ("serious", "critical")
        ]


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Chromium]:
    """A browser with a profile of its own in a folder; it sees nothing but this machine."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    program = shutil.which("chromedriver")
    if not browser or not program:
        missing("chromium or chromedriver is not there", "Install chromium and chromium-driver.")
        raise AssertionError
    arguments = [
        "headless=new",
        "no-sandbox",
        "disable-gpu",
        "disable-dev-shm-usage",
        "disable-background-networking",
        "disable-component-update",
        "no-first-run",
        "no-proxy-server",
        "hide-scrollbars",
        "force-color-profile=srgb",
        "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"user-data-dir={folder / 'profile'}",
    ]
    process = subprocess.Popen(
        [program, "--port=0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"HOME": str(folder)},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        port = next((found[1] for line in lines if (found := _PORT.search(line))), None)
        assert port, "chromedriver did not start"
        window = Chromium(f"http://127.0.0.1:{port}", {"binary": browser, "args": arguments})
        try:
            yield window
        finally:
            window.close()
    finally:
        if sys.platform != "win32":  # where the tests are skipped
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
