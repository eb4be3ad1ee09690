"""How the reference reads this library's docstrings."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Shows the section "Example" as code; the parser knows it by its plural only."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rename the section in the docstring of an object."""
        if obj.docstring is not None:
            found = obj.docstring.value
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", found, flags=re.MULTILINE)
