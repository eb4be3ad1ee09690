"""What MkDocs does beyond its settings: the benchmark reports become pages of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]


def on_files(files: Any, config: Any) -> Any:
    """Add the reports, which live beside the programs that write them, and their pictures."""
    for path in sorted((ROOT / "benchmarks").rglob("*")):
        if path.suffix in (".md", ".png"):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Make links out of ``docs/`` links within the site, as deep as the page lies."""
    up = "../" * page.file.src_uri.count("/")
    return re.sub(r"\]\((?:\.\./)+benchmarks/", f"]({up}benchmarks/", markdown)
