"""The HTML page in a real browser: headless Chromium (Debian's package ``chromium``), over the DevTools protocol.

The protocol is spoken over two pipes with the standard library only: JSON messages, each ended by a zero byte.
"""

import base64
import io
import json
import os
import select
import shutil
import subprocess
import sys
import time

import pytest
from reporting import HOSTILE, additive_model, model, study

from hushpoint import plots, report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="Chromium is not installed: apt-get install -y --no-install-recommends chromium fonts-liberation",
)
WAIT = 120  # seconds; a loaded machine is slow, and nothing here should ever take so long
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-default-apps", "--metrics-recording-only", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
# Chromium listens on descriptor 3 and answers on 4; a small Python puts the pipes there and becomes Chromium.
PLUG = (
    "import os, sys\n"
    "heard, told = (os.dup(int(n)) for n in sys.argv[1:3])\n"
    "heard, told = os.dup(heard), os.dup(told)\n"
    "os.dup2(heard, 3); os.dup2(told, 4)\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)


class Browser:
    """Headless Chromium with one tab."""

    def __init__(self, folder):
        read, self.write = os.pipe()
        self.read, write = os.pipe()
        command = [sys.executable, "-c", PLUG, str(read), str(write), CHROMIUM, *OPTIONS, f"--user-data-dir={folder}"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, pass_fds=(read, write), **quiet)
        os.close(read)
        os.close(write)
        self.rest, self.events, self.count, self.session = b"", [], 0, None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Ask for something and return the answer; what else is told meanwhile is kept in ``events``."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            told = self.heard()
            if told.get("id") == self.count:
                assert "error" not in told, told
                return told["result"]

    def heard(self):
        deadline = time.monotonic() + WAIT
        while b"\0" not in self.rest:
            assert select.select([self.read], [], [], max(0.0, deadline - time.monotonic()))[0], "Chromium is silent"
            part = os.read(self.read, 1 << 16)
            assert part, "Chromium ended"
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        told = json.loads(message)
        if "method" in told:
            self.events.append(told)
        return told

    def open(self, place, *, width=1100, height=800, scheme="light", media=""):
        """Load a file and wait until it and its images are there."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.events = []
        self.call("Page.navigate", url=place.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.heard()
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def ask(self, expression):
        """The value of an expression in the page, for example what a reader could measure there."""
        options = {"returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self):
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(picture["data"])

    def complaints(self):
        """What the console would show: messages, exceptions, refused or failed loads."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed")
        return [event["method"] for event in self.events if event["method"] in kinds]

    def requests(self):
        """What was loaded from anywhere but the page itself."""
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def images(self):
        return self.ask("Array.from(document.images, i => [i.complete, i.naturalWidth, i.naturalHeight, i.width])")

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.read)
        os.close(self.write)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A study with figures as they are drawn, and a model, both full of text that tries to run."""
    folder = tmp_path_factory.mktemp("a folder with spaces & <b>")
    run = study(folder / "run", HOSTILE)
    plots.draw_all(run)
    place = folder / "m.json"
    model(classes=("no", HOSTILE), name=HOSTILE, values=(HOSTILE, *map(str, range(60)))).save(place)
    curves = folder / "a.json"
    additive_model().save(curves)
    return {"study": report.write(run), "model": report.write(place), "additive": report.write(curves)}


@pytest.mark.parametrize("kind", ["study", "model"])
def test_the_page_works_from_a_file_alone(browser, pages, kind):
    # catches: a script from data that runs, an error in the console, anything loaded from elsewhere
    place = pages[kind]
    browser.open(place)
    assert browser.complaints() == []
    assert browser.requests() == [place.resolve().as_uri()]
    assert browser.ask("typeof window.owned") == "undefined"
    assert browser.ask("document.scripts.length") == 0
    assert browser.ask("document.compatMode") == "CSS1Compat"
    assert "window.owned=1" in browser.ask("document.body.innerText")


def test_the_figures_are_visible(browser, pages):
    # catches: an image that does not load or has no size; a page that stays blank
    from PIL import Image

    browser.open(pages["study"])
    images = browser.images()
    assert len(images) == 2
    for complete, width, height, shown in images:
        assert complete
        assert min(width, height) > 100
        assert shown > 400
    box = browser.ask("(r => [r.x, r.y, r.width, r.height])(document.images[0].getBoundingClientRect())")
    x, y, width, height = map(int, box)
    picture = Image.open(io.BytesIO(browser.screenshot())).convert("RGB").crop((x, y, x + width, y + height))
    colours = {colour for count, colour in picture.getcolors(1 << 24) if count > 20}
    assert (0x00, 0x72, 0xB2) in colours  # the curve of private ADMM
    assert (0xD5, 0x5E, 0x00) in colours  # the published one


@pytest.mark.parametrize("kind", ["study", "model", "additive"])
@pytest.mark.parametrize("width", [320, 768, 1600])
def test_the_page_fits_its_window(browser, pages, kind, width):
    # catches: a table or a long word that makes a telephone scroll sideways
    browser.open(pages[kind], width=width)
    browser.ask("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [360, 390, 1280])
def test_bars_and_captions_are_on_the_screen(browser, pages, width):
    # catches: bars to the right of a telephone's edge, and captions cut there, which nothing tells of
    browser.open(pages["additive"], width=width)
    browser.ask("document.querySelectorAll('details').forEach(part => part.open = true)")
    for name, least in (("td svg", 30), ("figure svg", 2), ("caption", 5), ("figcaption", 2)):
        ends = browser.ask(
            f"Array.from(document.querySelectorAll('{name}'), part => [part.getBoundingClientRect().left,"
            " part.getBoundingClientRect().right, part.scrollWidth - part.clientWidth])"
        )
        assert len(ends) >= least
        assert all(left >= 0 and right <= width for left, right, _ in ends)
        if "caption" in name:
            assert all(over <= 0 for _, _, over in ends)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out(browser, pages, scheme):
    # catches: dark words on a dark page; WCAG asks for a contrast of 4.5
    browser.open(pages["study"], scheme=scheme)
    colours = browser.ask(
        "['body', 'a', '.lead', 'figcaption', 'td', 'blockquote, pre'].map(name => {"
        "  const style = getComputedStyle(document.querySelector(name));"
        "  return [style.color, style.backgroundColor, getComputedStyle(document.body).backgroundColor]; })"
    )
    page = brightness(colours[0][2])
    assert (page < 0.1) == (scheme == "dark")
    for colour, own, below in colours:
        behind = brightness(below if own == "rgba(0, 0, 0, 0)" else own)
        light, dark = sorted([brightness(colour), behind], reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


def brightness(colour):
    """WCAG's relative luminance of a colour like rgb(1, 2, 3)."""
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_page_prints(browser, pages):
    # catches: a page that prints nothing, or dark
    browser.open(pages["study"], scheme="dark", media="print")
    assert brightness(browser.ask("getComputedStyle(document.body).backgroundColor")) > 0.9
    printed = base64.b64decode(browser.call("Page.printToPDF", preferCSSPageSize=True)["data"])
    assert printed.startswith(b"%PDF")


def test_these_tests_can_fail(browser, tmp_path):
    # a page with every fault that is looked for above
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!DOCTYPE html><title>bad</title><img src='http://127.0.0.1:9/x.png'><img src='data:image/png;base64,AAAA'>"
        "<div style='width: 3000px'>wide</div><script>window.owned=1; console.error('no'); nothing()</script>"
    )
    browser.open(bad, width=320)
    assert {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"} <= set(browser.complaints())
    assert "http://127.0.0.1:9/x.png" in browser.requests()
    assert [image[1] for image in browser.images()] == [0, 0]
    assert browser.ask("typeof window.owned") == "number"
    assert browser.ask("document.documentElement.scrollWidth") > 320
