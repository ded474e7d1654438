"""A real browser, driven over its DevTools protocol: what a page shows, says in its console, and asks the network for."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp

PATIENCE_SECONDS = 60.0
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0", "about:blank",
)  # fmt: skip


class Page:
    """One tab, or the browser itself."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            found = message.json()
            if "id" in found:
                self._answers.pop(found["id"]).set_result(found)
            else:
                self._heard(found["method"], found["params"])

    def _heard(self, method: str, said: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Network.requestWillBeSent":
                self.requests.append(said["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(said["exceptionDetails"]))
            case "Log.entryAdded" if said["entry"]["level"] == "error":
                self.complaints.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
            case "Runtime.consoleAPICalled" if said["type"] in {"error", "assert"}:
                self.complaints.append(str(said["args"]))
            case _:
                pass

    async def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        answer = await asyncio.wait_for(self._answers[number], PATIENCE_SECONDS)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    async def begin(self) -> None:
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.command(f"{domain}.enable")

    async def look_at(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        await self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded.clear()
        await self.command("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), PATIENCE_SECONDS)

    async def run(self, script: str) -> Any:
        """The value of an expression; a promise is waited for."""
        answer = await self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, script: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await self.run(script):
                await asyncio.sleep(0.05)

    async def picture(self, path: Path, *, whole: bool = True) -> None:
        shot = await self.command("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def running() -> Iterator[int]:
    """The port of a browser that runs inside the block; it is ended by its id."""
    assert PROGRAM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, (Path(folder) / "said").open("wb") as said:
        process = subprocess.Popen([PROGRAM, f"--user-data-dir={folder}", *FLAGS], stdout=subprocess.DEVNULL, stderr=said)
        try:
            yield _port(process, Path(folder))
        finally:
            process.kill()
            process.wait()


@contextlib.asynccontextmanager
async def tab(port: int) -> AsyncIterator[Page]:
    """A tab of the browser, which shares no cookies and no storage with others."""
    browser = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{browser}/json/version") as answer:
            address = (await answer.json())["webSocketDebuggerUrl"]
        async with session.ws_connect(address) as control:
            whole = Page(control)
            context = (await whole.command("Target.createBrowserContext"))["browserContextId"]
            made = await whole.command("Target.createTarget", url="about:blank", browserContextId=context)
            try:
                at = f"{browser}/devtools/page/{made['targetId']}"
                async with session.ws_connect(at, max_msg_size=2**26) as socket:
                    page = Page(socket)
                    await page.begin()
                    yield page
            finally:
                await whole.command("Target.disposeBrowserContext", browserContextId=context)


@contextlib.asynccontextmanager
async def browsing() -> AsyncIterator[Page]:
    """A browser of its own with one tab."""
    with running() as port:
        async with tab(port) as page:
            yield page


def _port(process: subprocess.Popen[bytes], folder: Path) -> int:
    until = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(FileNotFoundError):
            if len(lines := (folder / "DevToolsActivePort").read_text().split()) > 1:
                return int(lines[0])
        time.sleep(0.02)
    said = (folder / "said").read_text(errors="replace")
    raise AssertionError(f"the browser did not start: {said[-2000:]}")
