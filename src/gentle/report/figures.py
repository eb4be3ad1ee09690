"""Numbers, shares and values of columns as people write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gentle.columns import Column, Kind, Label

_LONGEST = 40  # characters of a name


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, whole ones as they are.

    Example:
        >>> number(2551.3472), number(0.012345), number(1e6), number(-1.5e-9), number(math.nan)
        ('2,551', '0.01235', '1,000,000', '-1.5e-09', '–')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == round(value) and abs(value) < 1e9:
        return f"{value:,.0f}"
    exponent = math.floor(math.log10(abs(value)))
    if not -4 <= exponent < 9:
        return f"{value:.{digits}g}"
    return f"{value:,.{max(0, digits - 1 - exponent)}f}"


def datum(value: float) -> str:
    """A number as it stands in a table of data; years have no commas.

    Example:
        >>> datum(1994.0), datum(25564.669921875), datum(3.5), datum(1234567.0)
        ('1994', '25,564.7', '3.5', '1,234,567')
    """
    if not abs(value) < 1e6:
        return number(value, 7)
    return f"{value:,.6g}" if abs(value) >= 10_000 else f"{value:.6g}"


def rounded(value: float, digits: int = 4) -> float:
    """A number with so many significant digits, but all those before the point.

    Example:
        >>> rounded(25564.67), rounded(0.5025781), rounded(0.0)
        (25565.0, 0.5026, 0.0)
    """
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def plus_minus(value: float, error: float) -> str:
    """A number with as many digits as its error, of which there are two, makes sense of.

    Example:
        >>> plus_minus(2551.3, 243.1), plus_minus(2.1123, 9.84), plus_minus(0.1234, 0.0)
        ('2,551 ± 243', '2.1 ± 9.8', '0.1234 ± 0')
    """
    if not (math.isfinite(value) and math.isfinite(error) and error > 0):
        return f"{number(value)} ± {number(error, 2)}"
    decimals = max(0, 1 - math.floor(math.log10(error)))
    if decimals > 8:
        return f"{number(value)} ± {number(error, 2)}"
    return f"{value:,.{decimals}f} ± {error:,.{decimals}f}"


def percent(share: float) -> str:
    """A share in percent, to the point where it is of interest.

    Example:
        >>> percent(0.5623), percent(0.0312), percent(0.0004), percent(0.0)
        ('56 %', '3.1 %', '0.04 %', '0 %')
    """
    if math.isnan(share):
        return "–"
    hundred = 100 * abs(share)
    if hundred >= 9.95 or hundred == 0:
        return f"{100 * share:.0f} %"
    return f"{float(f'{100 * share:.2g}'):g} %"


def value(of: float, kind: Kind, levels: Sequence[str] = ()) -> str:
    """One value of a `Column` in its own terms."""
    if math.isnan(of):
        return "missing"
    if kind in ("category", "ordered"):
        return cut(levels[int(of)])
    if kind == "boolean":
        return str(bool(of))
    if kind == "date":
        day = np.datetime64(0, "s") + np.timedelta64(round(of * 86_400), "s")
        whole = day.astype("datetime64[D]")
        return str(whole if day == whole else day)
    return datum(of) + (" s" if kind == "duration" else "")


def cell(column: Column, row: Any) -> str:
    """The value of a column in a row."""
    return value(float(column.values[row]), column.kind, column.levels)


def named(label: Label) -> str:
    """What a column is called."""
    return cut(label) if isinstance(label, str) else f"column {label}"


def cut(text: Any) -> str:
    """A name on one line, cut short if it is long."""
    words = " ".join(str(text).split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def counted(n: int, what: str, many: str | None = None) -> str:
    """A number of things.

    Example:
        >>> counted(1, "row"), counted(1200, "row"), counted(2, "category", "categories")
        ('1 row', '1,200 rows', '2 categories')
    """
    return f"{n:,} {what if n == 1 else many or what + 's'}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Names in a sentence.

    Example:
        >>> listed(["a", "b", "c"]), listed("abcd", most=2)
        ('a, b and c', 'a, b and 2 more')
    """
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most:,} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
