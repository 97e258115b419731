"""Chromium without a window, driven over the pipe of its DevTools protocol; needs no driver and no package.

https://chromedevtools.github.io/devtools-protocol/ lists the commands.
"""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time

EXECUTABLE = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
"""Path of Chromium or Chrome, or None."""

KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "Home": (36, ""), "End": (35, "")}
KEYS |= {"ArrowRight": (39, ""), "ArrowDown": (40, "")}
PATIENCE = 120
"""Seconds until a condition is given up."""


_START = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(pipe), fcntl.F_DUPFD, 10) for pipe in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Program that starts the browser, which reads commands from descriptor 3 and writes to 4."""


class Chromium:
    """A browser with an empty profile in `folder`; `close` ends it."""

    def __init__(self, folder):
        flags = ["--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--lang=en-US"]
        flags += ["--disable-sync", "--disable-extensions", "--password-store=basic", "--metrics-recording-only"]
        flags += ["--no-sandbox"]  # Root and most containers have none, and pages come from the test.
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        start = [sys.executable, "-ISc", _START, str(to_browser), str(from_browser)]
        command = [*start, EXECUTABLE, *flags, f"--user-data-dir={folder}", "about:blank"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), **quiet)
        os.close(to_browser)
        os.close(from_browser)
        self._ids, self._buffer, self.on_event = itertools.count(1), b"", lambda session, method, params: None

    def call(self, method, session=None, **params):
        """Result of a command; events that come before it go to `on_event`."""
        number = self.send(method, session, **params)
        while True:
            message = self._receive(PATIENCE)
            assert message is not None, f"no answer to {method}"
            if message.get("id") == number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self._dispatch(message)

    def send(self, method, session=None, **params):
        """Send a command without waiting for its result; gives its number."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        return number

    def pump(self, seconds=0.02):
        """Handle the events that come within this time."""
        while message := self._receive(seconds):
            self._dispatch(message)

    def _dispatch(self, message):
        if "method" in message:
            self.on_event(message.get("sessionId"), message["method"], message["params"])

    def _receive(self, seconds):
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], seconds)[0]:
                return None
            data = os.read(self._read, 2**16)
            assert data, "Chromium has ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def close(self):
        self.send("Browser.close")
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)


class Page:
    """A tab with storage of its own. `answers` maps a part of an address to a function that answers in its place."""

    def __init__(self, browser, width=1200, height=800):
        self.browser, self.answers, self.problems = browser, {}, []
        self._context = browser.call("Target.createBrowserContext")["browserContextId"]
        target = browser.call("Target.createTarget", url="about:blank", browserContextId=self._context)["targetId"]
        self._session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.on_event = self._on_event
        for domain in ("Page", "Runtime", "Log", "DOM"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def call(self, method, **params):
        return self.browser.call(method, self._session, **params)

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def _on_event(self, session, method, params):
        if session != self._session:
            return
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"])
        if method == "Log.entryAdded" and params["entry"]["source"] == "security":
            self.problems.append(params["entry"]["text"])
        if method == "Fetch.requestPaused":
            self.is_intercepting = True
            request, number = params["request"], params["requestId"]
            answer = next((answer for part, answer in self.answers.items() if part in request["url"]), None)
            reply = answer(request) if answer else None
            if reply == "hold":
                self.held.append(number)
            elif reply is None:
                self.browser.send("Fetch.continueRequest", self._session, requestId=number)
            else:
                self.fulfill(number, *reply)

    held: list
    is_intercepting = False

    def intercept(self, part, answer):
        """Let `answer(request)` give None (ask the server), `(status, object, headers)`, or "hold"."""
        self.answers[part], self.held, self.is_intercepting = answer, [], False
        self.call("Fetch.enable", patterns=[{"urlPattern": "*"}])
        if self.evaluate("location.protocol").startswith("http"):  # Chromium may let the next requests pass.
            probe = "fetch('page/icon.svg', {cache: 'no-store'}).then(() => 0)"
            self.wait_for(lambda: self.evaluate(probe) or self.is_intercepting, "a request that is intercepted")

    def fulfill(self, number, status, content, headers=None):
        """Answer a request that is held; it may have been given up meanwhile."""
        listed = [{"name": name, "value": value} for name, value in (headers or {}).items()]
        body = base64.b64encode(json.dumps(content).encode()).decode()
        options = {"requestId": number, "responseCode": status, "responseHeaders": listed, "body": body}
        self.browser.send("Fetch.fulfillRequest", self._session, **options)

    def open(self, address):
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=address)
        self.wait_until("document.readyState === 'complete'")

    def evaluate(self, expression):
        """Value of an expression of JavaScript; a promise is awaited."""
        options = {"expression": expression, "returnByValue": True, "awaitPromise": True, "userGesture": True}
        result = self.call("Runtime.evaluate", **options)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_for(self, condition, what):
        """Wait until a function gives something true, and give it back."""
        until = time.monotonic() + PATIENCE
        while not (result := condition()):
            assert time.monotonic() < until, what() if callable(what) else f"there is not {what}"
            self.browser.pump()
        return result

    def wait_until(self, expression, value=True):
        """Wait until an expression has this value."""
        self.wait_for(
            lambda: self.evaluate(expression) == value,
            lambda: f"{expression} is {self.evaluate(expression)!r}, not {value!r}",
        )

    def file(self, path):
        """Path of a finished download, which may still be under way."""
        return self.wait_for(lambda: path.exists() and path, path)

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def wait_for_text(self, selector, text):
        self.wait_until(f"document.querySelector({json.dumps(selector)})?.innerText", text)

    def resize(self, width, height=800, scale=1):
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.call("Emulation.setDeviceMetricsOverride", mobile=False, **size)

    def picture(self):
        """Bytes of a PNG of the window."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def emulate(self, **features):
        """Set media features, such as `prefers_color_scheme="dark"`."""
        listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=listed)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, has_control=False):
        code, text = KEYS[key]
        names = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 2 * has_control}
        self.call("Input.dispatchKeyEvent", type="keyDown", **names, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **names)

    def command(self, name):
        """Do what a shortcut such as Ctrl+Z does, by its name in the editor: "undo", "copy", "paste"."""
        self.call("Input.dispatchKeyEvent", type="rawKeyDown", key=name, commands=[name])

    def center(self, expression):
        """Middle of an element that an expression of JavaScript gives, in the window."""
        box = f"(r => [r.x + r.width / 2, r.y + r.height / 2])(({expression}).getClientRects()[0])"
        return self.evaluate(f"({expression}).scrollIntoView({{block: 'nearest'}}), {box}")

    def hover(self, expression):
        x, y = self.center(expression)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, expression):
        x, y = self.center(expression)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def choose_files(self, selector, *paths):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def drop(self, path, expression):
        """Drag a file from outside and drop it on an element."""
        x, y = self.center(expression)
        data = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)

    def download_to(self, folder):
        options = {"behavior": "allow", "browserContextId": self._context, "downloadPath": str(folder)}
        self.browser.call("Browser.setDownloadBehavior", **options)


def violations(page, axe):
    """Barriers that axe-core, given as its source, finds on a page."""
    page.evaluate(axe + ";0")
    run = "axe.run().then(({violations}) => violations.map(v => [v.impact, v.id, v.nodes.map(n => n.html)]))"
    return page.evaluate(run)
