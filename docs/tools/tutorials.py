"""Run the tutorials and write them down: scripts become pages with their real output.

    python docs/tools/tutorials.py            # all of them
    python docs/tools/tutorials.py incomes    # one

A script in ``examples/tutorials`` is made of cells. After a line ``# %% [markdown]`` the comments
are text, after ``# %%`` comes code. Below each cell of code stands what it printed and drew; words
after the ``%%`` describe the picture to who cannot see it. A page carries the fingerprint of its
script, and a test compares the two: pages cannot drift.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import hashlib
import io
import re
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "tutorials"
PAGES = ROOT / "docs" / "tutorials"
TEXT = "[markdown]"
WIDTH = 92
FILE_DPI, CSS_DPI = 200, 130  # pixels per inch of the pictures, and of the page that shows them
MARKER = re.compile(r"^# %%(.*)$", re.MULTILINE)


def cells(source: str) -> Iterator[tuple[str, str]]:
    """The words after each mark, and what stands below them, text without its comment signs."""
    _, *parts = MARKER.split(source)
    for words, body in zip(parts[::2], parts[1::2]):
        words, body = words.strip(), body.strip()
        is_text = words == TEXT
        yield words, re.sub(r"^# ?", "", body, flags=re.MULTILINE) if is_text else body


def fingerprint(source: str) -> str:
    """What a page remembers of the script that it was made from."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def run(source: str, picture: Callable[[Any], str]) -> Iterator[str]:
    """Execute the cells of a script, and yield the page piece by piece.

    Args:
        source: The script's text.
        picture: Told of each figure that a cell leaves open; says where to find it.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    namespace: dict[str, Any] = {"__name__": "__main__"}
    for words, body in cells(source):
        if words == TEXT:
            yield body
            continue
        yield f"```python\n{body}\n```"
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            exec(compile(body, "tutorial", "exec"), namespace)
        ours = [str(w.message) for w in said if issubclass(w.category, UserWarning)]
        shown = printed.getvalue() + "".join(f"Warning: {text}\n" for text in ours)
        if shown.strip():
            lines = "\n".join(_broken(line) for line in shown.rstrip().splitlines())
            yield f"```text\n{lines}\n```"
        for number in plt.get_fignums():
            figure = plt.figure(number)
            width = round(CSS_DPI * figure.get_figwidth())
            yield f'![{words}]({picture(figure)}){{ width="{width}" }}'
            plt.close(figure)


def _broken(line: str) -> str:
    """A long sentence in lines of a page's width; tables, whose cells are apart, stay."""
    return line if "  " in line else textwrap.fill(line, WIDTH, subsequent_indent="  ")


def build(script: Path) -> None:
    """Write the page of a script, with its pictures beside it."""
    name, source, started = script.stem, script.read_text(), time.process_time()
    pictures: dict[str, io.BytesIO] = {}

    def picture(figure: Any) -> str:
        file = f"{name}-{len(pictures) + 1}.png"
        figure.savefig(pictures.setdefault(file, io.BytesIO()), dpi=FILE_DPI)
        return file

    text = "\n\n".join(run(source, picture))
    seconds = time.process_time() - started
    text += (
        f"\n\n---\n\nThis page is what `examples/tutorials/{name}.py` printed and drew on "
        f"{datetime.date.today()}, in {seconds:.0f} seconds of processor time on one x86-64 core. "
        f"`python docs/tools/tutorials.py {name}` makes it again.\n\n"
        f"<!-- made from {fingerprint(source)} -->\n"
    )
    for old in PAGES.glob(f"{name}-*.png"):
        old.unlink()
    for file, image in pictures.items():
        (PAGES / file).write_bytes(image.getvalue())
    (PAGES / f"{name}.md").write_text(text)
    print(f"{name}: {seconds:.0f} s of processor time, {len(pictures)} pictures")


def main() -> None:
    """Build all tutorials, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="tutorials to build; all without")
    names = parser.parse_args().names or sorted(path.stem for path in SCRIPTS.glob("*.py"))
    for name in names:
        build(SCRIPTS / f"{name}.py")


if __name__ == "__main__":
    main()
