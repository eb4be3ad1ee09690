"""The picture of `gentle report` in ``docs/start.md``, taken in a browser that nobody sees.

    python docs/tools/screenshots.py

It does what that page tells its reader to do. The explorer has a program of its own for its
pictures, `examples/explorer_screenshots.py --out docs/pictures`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEPS = (
    "datasets cps91 --out cps91/",
    "fit cps91/train.csv --target earns --out model/ --seed 0 --quiet",
    "report model/ cps91/test.csv --out report.html",
)


def main() -> None:
    """Fit, report, and take the picture."""
    sys.path.insert(0, str(ROOT / "examples"))
    from explorer_screenshots import browser

    with tempfile.TemporaryDirectory() as folder, browser() as chromium:
        for step in STEPS:
            command = [sys.executable, "-m", "gentle", *step.split()]
            subprocess.run(command, cwd=folder, check=True)
        page = chromium.new_page(viewport={"width": 1100, "height": 900})
        page.goto((Path(folder) / "report.html").as_uri())
        page.screenshot(path=ROOT / "docs" / "pictures" / "report.png")


if __name__ == "__main__":
    main()
