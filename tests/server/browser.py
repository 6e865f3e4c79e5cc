"""A page in headless Chromium, by the protocol of its developer tools."""

import base64
import contextlib
import re
import subprocess
from pathlib import Path

import aiohttp

CHROMIUM = next((path for path in ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome") if Path(path).exists()), None)


class Page:
    def __init__(self, socket):
        self.socket, self.count, self.problems = socket, 0, []

    async def call(self, method, **params):
        self.count += 1
        await self.socket.send_json({"id": self.count, "method": method, "params": params})
        while True:
            message = await self.socket.receive_json(timeout=60)
            entry = message.get("params", {}).get("entry", {})
            # An answer with the status of an error is the test's own business.
            is_bad = entry.get("level") in ("warning", "error") and entry["source"] != "network"
            if message.get("method") == "Runtime.exceptionThrown" or is_bad:
                self.problems.append(message["params"])
            if message.get("id") == self.count:
                assert "error" not in message, message["error"]
                return message["result"]

    async def run(self, code):
        """The value of an expression, or of the promise that it makes."""
        result = await self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def until(self, code):
        """Waits until an expression is true."""
        waiting = f"new Promise((done) => {{ const look = () => ({code}) ? done(true) : setTimeout(look, 20); look(); }})"
        assert await self.run(waiting)

    async def screenshot(self, path):
        path.write_bytes(base64.b64decode((await self.call("Page.captureScreenshot"))["data"]))


@contextlib.asynccontextmanager
async def opened(address, profile):
    """A page of 800 by 700 pixels, once it is loaded."""
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    command = [CHROMIUM, *options, "--window-size=800,700", "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = iter(process.stderr.readline, "")
            port = next(found[1] for line in lines if (found := re.search(r"ws://127.0.0.1:(\d+)/", line)))
            async with aiohttp.ClientSession() as http:
                async with http.get(f"http://127.0.0.1:{port}/json/list") as response:
                    socket = next(tab["webSocketDebuggerUrl"] for tab in await response.json() if tab["type"] == "page")
                async with http.ws_connect(socket, max_msg_size=0) as socket:
                    page = Page(socket)
                    for domain in ("Page", "Runtime", "Log"):
                        await page.call(f"{domain}.enable")
                    await page.call("Page.navigate", url=address)
                    await page.until(f"location.href.startsWith({address!r}) && document.readyState === 'complete'")
                    yield page
        finally:
            process.terminate()
