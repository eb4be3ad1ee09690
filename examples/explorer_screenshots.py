"""Pictures of `gentle explore` for the documentation, taken in a browser that nobody sees.

    python examples/explorer_screenshots.py --out docs/pictures

It needs the extra explore, playwright, and a Chromium: that of the system, or playwright's own
(`playwright install chromium`). The tests of the page use the same browser and server.
"""

import argparse
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
PATIENCE = 60_000  # milliseconds, for machines with other things to do


def free_port():
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def served(*arguments):
    """A running `gentle explore`; yields its address."""
    port = free_port()
    command = [sys.executable, "-m", "gentle", "explore", *map(str, arguments), "--no-browser"]
    server = subprocess.Popen([*command, "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urlopen(f"{url}/_stcore/health", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, "gentle explore has ended"
                time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def browser():
    """A Chromium without a window."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


def opened(chromium, url, width=1280, height=900):
    """The page, shown whole; what it asks for and complains of is in ``page.asked``, ``.said``."""
    page = chromium.new_page(viewport={"width": width, "height": height})
    page.set_default_timeout(PATIENCE)
    page.asked, page.said = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("websocket", lambda socket: page.asked.append(socket.url))
    page.on("console", lambda line: page.said.append((line.type, line.text)))
    page.on("pageerror", lambda error: page.said.append(("error", str(error))))
    page.goto(url)
    page.get_by_text("The first of them").wait_for()
    settled(page)
    return page


def settled(page):
    """Wait until streamlit has nothing to do and the pictures are drawn."""
    page.wait_for_timeout(300)
    page.wait_for_function(
        "() => document.querySelector('[data-test-script-state=notRunning]')"
        " && !document.querySelector('[data-stale=true]')"
        " && document.querySelectorAll('.js-plotly-plot .main-svg').length > 2"
    )
    page.wait_for_timeout(300)


def press(page, name, key, times=1):
    """Move a slider by the keyboard, and wait until the page says so."""
    slider = page.get_by_role("slider", name=name)
    slider.focus()
    for _ in range(times):
        slider.press(key)
    page.get_by_text(f"{name} {slider.input_value()}").first.wait_for()
    settled(page)


def choose(page, name, option, sign):
    """Choose from a list by the keyboard, and wait for a text that follows from it."""
    box = page.get_by_role("combobox", name=name)
    box.click()
    box.fill(option)
    page.keyboard.press("Enter")
    page.get_by_text(sign).first.wait_for()
    settled(page)


def enter(page, name, number, sign):
    """Type a number, and wait for a text that follows from it."""
    page.get_by_role("spinbutton", name=name).fill(str(number))
    page.keyboard.press("Enter")
    page.get_by_text(sign).first.wait_for()
    settled(page)


def pictures(chromium, url, out):
    """The page wide and narrow."""
    page = opened(chromium, url)
    page.screenshot(path=out / "explorer.png")
    page.get_by_role("button", name="Pin to compare").click()
    page.get_by_role("button", name="Unpin").wait_for()
    press(page, "age", "ArrowRight", 15)
    choose(page, "occupation", "technology", "occupation technology")
    page.set_viewport_size({"width": 1280, "height": 2300})
    settled(page)
    page.screenshot(path=out / "explorer-compare.png")
    page.close()
    page = opened(chromium, url, 390, 844)
    page.screenshot(path=out / "explorer-narrow.png")
    page.close()


def main():
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with served() as url, browser() as chromium:
        pictures(chromium, url, out)
    print(f"wrote {', '.join(sorted(path.name for path in out.glob('explorer*.png')))} to {out}")


if __name__ == "__main__":
    main()
