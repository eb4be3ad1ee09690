"""Write ``docs/commands.md`` from what the command line says of itself.

python docs/tools/commands.py
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

PAGE = Path(__file__).parents[1] / "commands.md"

INTRODUCTION = """\
# Command line

This page is made from what `gentle COMMAND --help` says. Tables are CSV (`.csv`, `.csv.gz`) or
Parquet (`.parquet`, `.pq`) files with a header. What goes wrong is said in one line;
`gentle --traceback COMMAND ...` shows where in the program it arose.
"""


def page() -> str:
    """The page as it should be."""
    from gentle.cli import app

    commands: Any = [command.callback for command in app.registered_commands]
    return "\n".join([INTRODUCTION, *map(_section, commands)])


def _section(command: Callable[..., None]) -> str:
    name = command.__name__
    text, _, example = _plain(inspect.getdoc(command) or "").partition("Example:")
    known = list(_parameters(command))
    usage = " ".join(["gentle", name, *(word for word, _, is_option in known if not is_option)])
    parts = [
        f"## gentle {name}",
        f"`{usage} [OPTIONS]`",
        _coded(text).strip(),
        "\n".join(
            ["```console", *(f"$ {line.strip()}" for line in example.split("\n") if line), "```"]
        ),
        "\n".join(
            [
                "| argument or option | meaning |",
                "|---|---|",
                *(f"| `{word}` | {said} |" for word, said, _ in known),
            ]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _parameters(command: Callable[..., None]) -> Iterator[tuple[str, str, bool]]:
    """How each parameter is written, what it does, and whether it is an option."""
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        kind, info = get_args(hints[name])
        kind = next((one for one in get_args(kind) if one is not type(None)), kind)
        is_option = type(info).__name__ == "OptionInfo"
        required = parameter.default is parameter.empty
        word = info.metavar or name.upper()
        if is_option:
            # Inside Annotated, the first name arrives where a default would be.
            given = [info.default, *(info.param_decls or ())]
            given = [one for one in given if isinstance(one, str) and one.startswith("-")]
            names = ", ".join(given or [f"--{name.replace('_', '-')}"])
            word = names if kind is bool else f"{names} {_value(info, kind)}"
        elif not required:
            word = f"[{word}]"
        yield word, _coded(info.help or "") + _default(parameter.default, info), is_option


def _value(info: Any, kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "/".join(str(one.value) for one in kind)
    return info.metavar or kind.__name__.upper()


def _default(default: Any, info: Any) -> str:
    if default is inspect.Parameter.empty:
        return " Required."
    if isinstance(info.show_default, str):
        return f" Default: {_coded(info.show_default)}."
    if default is None or isinstance(default, bool):
        return ""
    return f" Default: {getattr(default, 'value', default)}."


def _plain(text: str) -> str:
    """Without the marks that keep square brackets from being read as colours."""
    return re.sub(r"\\(?=\[)", "", text)


def _coded(text: str) -> str:
    """Names of options as code."""
    return re.sub(r"(?<![\w`-])(--[a-z]+(?:-[a-z]+)*)", r"`\1`", _plain(text))


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
