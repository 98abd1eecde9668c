"""Open every page of a built site in Chromium, and say what a reader cannot read, see or reach.

``python -m gradgate.suites.site.browser --site site``

Chromium runs without a window. It is controlled over its debugging protocol, with Tornado's WebSocket client. The
program is named by the variable CHROMIUM, or found as ``chromium``, ``chromium-browser`` or ``google-chrome``.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError
from gradgate.suites.site import checking

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--no-zygote",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
)
NARROW = 400
"""Width in pixels of the narrowest screen on which every page must be readable."""
WIDTHS = (NARROW, 800, 1200)
"""Widths at which every page is opened: a phone, a tablet, a desk."""
SEARCH = "search.html?q=gradient"
"""A question that the search of the site must answer."""
SCHEMES = ("dark", "light")
"""The schemes of colours of a page; screenshots are taken in the last one."""
READABLE = Path(__file__).with_name("readable.js")
"""A JavaScript expression: what a reader of a page cannot see or reach, a sentence each."""
SLOW = 30
"""Seconds to wait for an answer from the browser."""
MEASURED = """(() => {
  const page = performance.getEntriesByType("navigation")[0], all = performance.getEntriesByType("resource");
  return JSON.stringify({
    width: document.documentElement.scrollWidth, milliseconds: Math.round(page.loadEventEnd),
    bytes: page.transferSize + all.reduce((sum, one) => sum + one.transferSize, 0),
    reachable: document.querySelectorAll("a[href], button, input, summary, [tabindex='0']").length,
    found: document.querySelectorAll("ul.search li").length,
  });
})()"""


@dataclass(frozen=True)
class Opened:
    """What the browser reports about a page.

    Attributes:
        path: the path of the page, below the site.
        width: width of its content in pixels; if it exceeds the screen, the page scrolls sideways.
        milliseconds: time until everything was loaded.
        bytes: bytes that were transferred.
        reachable: how many elements the keyboard reaches.
        found: number of results, on the page of the search.
        complaints: errors of scripts, files that could not be loaded, requests to other servers, and what a reader
            cannot see or reach in one of the `SCHEMES`.
    """

    path: str
    width: int
    milliseconds: int
    bytes: int
    reachable: int
    found: int
    complaints: tuple[str, ...]


def chromium() -> str | None:
    """The program of the browser, or None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def open_all(site: Path, paths: Sequence[str], width: int = NARROW, shots: Path | None = None) -> list[Opened]:
    """Open pages of a site, one after another.

    Args:
        site: its folder, which is served on this machine meanwhile.
        paths: the paths of the pages, below the site; a query may follow.
        width: the width of the screen in pixels.
        shots: a folder for a screenshot of each page; None takes no screenshots.

    Raises:
        UsageError: there is no Chromium, or it does not answer; says what to do.
    """
    program = chromium()
    if program is None:
        raise UsageError(f"no browser: install {NAMES[0]}, or name its program in the variable CHROMIUM")
    with served(site) as address:
        return asyncio.run(_open_all(program, address, paths, width, shots))


def on_page(site: Path, path: str, scripts: Sequence[str], width: int = NARROW, shots: Path | None = None) -> list[Any]:
    """Open a page of a site, and evaluate JavaScript expressions on it, one after another.

    Args:
        site: its folder, which is served on this machine meanwhile.
        path: the path of the page, below the site.
        scripts: the expressions; a promise is awaited.
        width: the width of the screen in pixels.
        shots: a folder for a screenshot after each expression; None takes no screenshots.

    Returns:
        The values, as JSON types, and last what the page complained of, in words.

    Raises:
        UsageError: as `open_all`.
    """
    program = chromium()
    if program is None:
        raise UsageError(f"no browser: install {NAMES[0]}, or name its program in the variable CHROMIUM")
    with served(site) as address:
        return asyncio.run(_on_page(program, address, path, scripts, width, shots))


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine; yields its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class Tab:
    """A tab of the browser, over the debugging protocol."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.events: list[dict[str, Any]] = []
        self.calls = 0

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its result; events that arrive meanwhile are kept."""
        self.calls += 1
        await self.connection.write_message(json.dumps({"id": self.calls, "method": method, "params": params}))
        while True:
            told = json.loads(await asyncio.wait_for(self.connection.read_message(), SLOW))
            if told.get("id") == self.calls:
                return dict(told.get("result", {}))
            self.events.append(told)

    async def value(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        told = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"].get("exception", {}).get("description", expression))
        return told["result"].get("value")

    def complaints(self, address: str) -> tuple[str, ...]:
        """What went wrong since the events were last cleared."""
        told = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                told.append(details.get("exception", {}).get("description", details["text"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                told.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                told.append(str([part.get("value") for part in params["args"]]))
            elif method == "Network.requestWillBeSent":
                asked = params["request"]["url"]
                if not asked.startswith((address, "data:", "blob:")):
                    told.append(f"request to another server: {asked}")
        return tuple(told)


async def _open_all(program: str, address: str, paths: Sequence[str], width: int, shots: Path | None) -> list[Opened]:
    async with _tab(program) as tab:
        await _prepare(tab, width)
        found = []
        for path in paths:
            opened = await _open(tab, address, path, shots)
            unread = await _unreadable(tab)
            found.append(replace(opened, complaints=(*opened.complaints, *unread)))
        return found


async def _unreadable(tab: Tab) -> list[str]:
    """What a reader of the open page cannot see or reach, in each scheme of colours."""
    told = []
    await tab.call("Emulation.setFocusEmulationEnabled", enabled=True)  # the tab has no window that could be in front
    for scheme in SCHEMES:
        await tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        await asyncio.sleep(0.3)  # a script may draw its plots again
        told += [f"{scheme}: {sentence}" for sentence in await tab.value(READABLE.read_text(encoding="utf-8"))]
    return told


async def _on_page(
    program: str, address: str, path: str, scripts: Sequence[str], width: int, shots: Path | None
) -> list[Any]:
    async with _tab(program) as tab:
        await _prepare(tab, width)
        await _open(tab, address, path, None)
        found = []
        for number, script in enumerate(scripts):
            found.append(await tab.value(script))
            if shots:
                await _picture(tab, shots / f"{Path(path).stem}-{width}-{number}.png")
        return [*found, list(tab.complaints(address))]


async def _prepare(tab: Tab, width: int) -> None:
    for domain in ("Page", "Runtime", "Log", "Network"):
        await tab.call(f"{domain}.enable")
    await tab.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
    )


async def _picture(tab: Tab, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = await tab.call("Page.captureScreenshot", format="png")
    path.write_bytes(base64.b64decode(picture["data"]))


async def _open(tab: Tab, address: str, path: str, shots: Path | None) -> Opened:
    tab.events.clear()
    await tab.call("Page.navigate", url=address + path)
    for _ in range(10 * SLOW):
        if await tab.value(f"document.readyState == 'complete' && location.href.startsWith('{address}')"):
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)  # what scripts do after loading, such as a search
    found = json.loads(await tab.value(MEASURED))
    if shots:
        await _picture(tab, shots / ("".join(c if c.isalnum() else "_" for c in path) + ".png"))
    return Opened(path, complaints=tab.complaints(address), **found)


@contextlib.asynccontextmanager
async def _tab(program: str) -> AsyncIterator[Tab]:
    from tornado.websocket import websocket_connect

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        browser = subprocess.Popen(command, env=os.environ | {"HOME": profile}, **silent)  # type: ignore[call-overload]
        try:
            port = await _port(Path(profile) / "DevToolsActivePort")
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=SLOW) as answer:
                [page, *_] = [one for one in json.load(answer) if one["type"] == "page"]
            connection = await websocket_connect(page["webSocketDebuggerUrl"], max_message_size=2**28)
            yield Tab(connection)
            connection.close()
            while await connection.read_message() is not None:  # until the browser has closed it too
                pass
        finally:
            browser.terminate()
            browser.wait(SLOW)


async def _port(file: Path) -> int:
    """The port that the browser chose, from the file that it writes."""
    for _ in range(10 * SLOW):
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        await asyncio.sleep(0.1)
    raise UsageError(f"the browser did not start within {SLOW} s: try it by hand with {' '.join(FLAGS)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Open every page at each width; returns 0, or 1 if a page has errors, is too wide, or the search finds nothing.

    Wrong usage is 3.
    """
    parser = argparse.ArgumentParser(description="Open every page of a built site in Chromium.")
    parser.add_argument("--site", type=Path, default=Path("site"), help="its folder (default: site/)")
    shown = ",".join(map(str, WIDTHS))
    widths = f"widths of the screen in pixels (default {shown})"
    parser.add_argument("--width", default=shown, metavar="N[,N…]", help=widths)
    parser.add_argument("--shots", type=Path, help="folder for a screenshot of each page at each width")
    chosen = parser.parse_args(arguments)
    paths = [path.relative_to(chosen.site).as_posix() for path in checking.pages(chosen.site)]
    paths += [SEARCH] if "search.html" in paths else []
    wrong: list[str] = []
    opened: list[Opened] = []
    try:
        for width in map(int, chosen.width.split(",")):
            shots = chosen.shots / str(width) if chosen.shots else None
            found = open_all(chosen.site, paths, width, shots)
            wrong += [f"{page.path}: {complaint}" for page in found for complaint in page.complaints]
            wrong += [f"{page.path} is {page.width} pixels wide, not {width}" for page in found if page.width > width]
            wrong += [f"{page.path} finds nothing" for page in found if page.path == SEARCH and not page.found]
            opened += found
    except (UsageError, ValueError) as error:
        print(f"site: {error}", file=sys.stderr)
        return 3
    for line in dict.fromkeys(wrong):
        print(line, file=sys.stderr)
    slowest = max(opened, key=lambda page: page.milliseconds)
    print(f"{len(paths)} pages opened at {chosen.width} pixels; {slowest.path} took longest, {slowest.milliseconds} ms")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
