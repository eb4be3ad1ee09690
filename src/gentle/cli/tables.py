"""Tables in files: reading them, taking columns from them, and writing them whole or not at all."""

from __future__ import annotations

import gzip
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

_ISO_DATE = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_ENDINGS = {".csv": "csv", ".csv.gz": "csv.gz", ".parquet": "parquet", ".pq": "parquet"}


def read_table(path: Path) -> pd.DataFrame:
    """Read a CSV or Parquet file that has a header and at least one row."""
    if path.is_dir():
        raise ValueError(f"{_quoted(path)} is a folder, but a file is needed here")
    if not path.exists():
        raise ValueError(f"there is no file {_quoted(path)}")
    frame = _read_parquet(path) if table_kind(path) == "parquet" else _read_csv(path)
    frame.columns = [str(name) for name in frame.columns]  # Parquet also knows numbers as names
    if frame.empty:
        raise ValueError(f"{_quoted(path)} has no rows below its header")
    if len(frame.columns) == 1 and any(mark in frame.columns[0] for mark in ";\t|"):
        raise ValueError(
            f"{_quoted(path)} seems to separate its columns by something else than commas: "
            f"its header reads {shortened(frame.columns[0])}. Save it with commas."
        )
    return frame


def table_kind(path: Path) -> str:
    """How a table is stored, from the ending of its name."""
    for ending, kind in _ENDINGS.items():
        if path.name.lower().endswith(ending):
            return kind
    raise ValueError(
        f"the name {_quoted(path)} does not tell what kind of table it is; "
        f"it has to end in one of {', '.join(_ENDINGS)}"
    )


def _read_csv(path: Path) -> pd.DataFrame:
    import warnings

    import pandas as pd

    exactly: Any = "round_trip"  # a number is read as it was written, to the last bit
    try:
        _require_text(path)
        with warnings.catch_warnings():
            # A row longer than the header would lose its end; pandas only warns of it.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path,
                index_col=False,
                skipinitialspace=True,
                encoding="utf-8-sig",
                low_memory=False,
                float_precision=exactly,
            )
        _require_different_names(path)
        for name in frame.select_dtypes(exclude=["number", "bool"]):
            frame[name] = _dates_read(frame[name])
        return frame
    except pd.errors.EmptyDataError:
        raise ValueError(f"{_quoted(path)} is empty") from None
    except pd.errors.ParserWarning:
        raise ValueError(f"{_quoted(path)} has rows with more fields than its header") from None
    except pd.errors.ParserError as error:
        reason = str(error).removeprefix("Error tokenizing data. C error: ")
        raise ValueError(f"{_quoted(path)} is not a well-formed CSV file: {reason}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{_quoted(path)} is not text in UTF-8, so not a CSV file") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ValueError(f"{_quoted(path)} is damaged or not a gzip file") from None


def _require_text(path: Path) -> None:
    """Raise a ValueError for zero bytes, at which the parser would cut fields off."""
    with (gzip.open if table_kind(path) == "csv.gz" else open)(path, "rb") as handle:
        for block in iter(lambda: handle.read(2**20), b""):
            if b"\0" in block:
                raise ValueError(
                    f"{_quoted(path)} holds zero bytes, so it is not text in UTF-8; if it is in "
                    "UTF-16, save it in UTF-8"
                )


def _require_different_names(path: Path) -> None:
    """Raise a ValueError if a header has a name twice, one of which pandas would change."""
    import pandas as pd

    header = pd.read_csv(
        path, header=None, nrows=1, dtype=str, skipinitialspace=True, encoding="utf-8-sig"
    ).iloc[0]
    twice = header[header.notna() & header.duplicated()]
    if len(twice):
        raise ValueError(
            f"{_quoted(path)} has more than one column named {shortened(twice.iloc[0])}; "
            "rename or drop all but one"
        )


def _dates_read(column: Any) -> Any:
    """A column of which every text is an ISO date, as dates; others as they are."""
    import pandas as pd

    texts = column.dropna()
    if not len(texts) or not all(
        isinstance(text, str) and re.fullmatch(_ISO_DATE, text) for text in texts.unique()
    ):
        return column
    try:
        return pd.to_datetime(column, utc=True, format="ISO8601")
    except ValueError:  # the 31st of February, or beyond the calendar of pandas
        return column


def _read_parquet(path: Path) -> pd.DataFrame:
    import pandas as pd
    import pyarrow as pa

    try:
        return pd.read_parquet(path).reset_index(drop=True)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise ValueError(
            f"{_quoted(path)} is damaged or not a Parquet file ({str(error).splitlines()[0]})"
        ) from None


def require_columns(frame: pd.DataFrame, names: Iterable[str], path: Path) -> None:
    """Raise a ValueError that names the columns a table lacks, and those it has."""
    missing = [name for name in names if name not in frame]
    if not missing:
        return
    by_lower_case = {name.lower(): name for name in frame}
    closest = get_close_matches(missing[0].lower(), by_lower_case, n=1)
    hint = f" Did you mean {by_lower_case[closest[0]]!r}?" if closest else ""
    raise ValueError(
        f"{_quoted(path)} has no column{'s' * (len(missing) > 1)} {listed(missing)}.{hint} "
        f"Its columns are {listed(frame)}."
    )


def number_column(frame: pd.DataFrame, name: str, role: str, path: Path) -> NDArray[np.float64]:
    """A column as finite floats, ``(n,)``; ``role`` says in errors what it is for."""
    import numpy as np
    import pandas as pd

    require_columns(frame, [name], path)
    column = frame[name]
    values = np.full(len(column), np.nan)
    if column.dtype.kind not in "mM":  # dates would become nanoseconds
        values = np.asarray(pd.to_numeric(column, errors="coerce"), np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        row = int(bad[0])
        found = "nothing" if pd.isna(column.iloc[row]) else shortened(column.iloc[row])
        raise ValueError(
            f"column {name!r} ({role}) must hold numbers, but {found} stands in row {row} of "
            f"{_quoted(path)} (counted from 0), and {len(bad)} row(s) are like that. "
            "Fill them in or drop these rows."
        )
    return values


def model_columns(
    model: Any, frame: pd.DataFrame, path: Path, others: Iterable[str] = ()
) -> pd.DataFrame:
    """A model's covariates: found by name, or if it knows no names all columns but ``others``."""
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return frame.drop(columns=list(others))
    require_columns(frame, names, path)
    return frame.loc[:, list(names)]


def check_free(path: Path, overwrite: bool) -> None:
    """Raise a ValueError if a table cannot be written under this name."""
    table_kind(path)
    if path.is_dir():
        raise ValueError(f"{_quoted(path)} is a folder; name a file in it")
    if path.exists() and not overwrite:
        raise ValueError(f"{_quoted(path)} exists already; add --overwrite to replace it")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"the folder {_quoted(path.parent)} does not exist; create it first")


@contextmanager
def table_writer(path: Path | None, overwrite: bool) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Write a table piece by piece; its file appears, or is replaced, once all of it is there.

    Args:
        path: The file, or None for CSV on standard output.
        overwrite: Replace a file that exists.

    Yields:
        The function that appends a piece.
    """
    if path is None:
        yield _csv_appender(sys.stdout)
        return
    check_free(path, overwrite)
    target = Path(os.path.realpath(path))  # a link stays one
    scratch = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _opened(scratch, table_kind(path)) as append:
            yield append
        os.replace(scratch, target)
    except OSError as error:
        if error.errno and error.filename in (None, str(scratch)):  # users know nothing of it
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def _opened(path: Path, kind: str) -> Iterator[Callable[[pd.DataFrame], None]]:
    if kind == "csv":
        with path.open("w", newline="", encoding="utf-8") as handle:
            yield _csv_appender(handle)
    elif kind == "csv.gz":
        with gzip.open(path, "wt", newline="", encoding="utf-8", compresslevel=6) as handle:
            yield _csv_appender(handle)
    else:
        with path.open("wb") as handle:
            yield from _parquet_appender(handle)


def _csv_appender(handle: Any) -> Callable[[pd.DataFrame], None]:
    started = False

    def append(frame: pd.DataFrame) -> None:
        nonlocal started
        frame.to_csv(handle, index=False, header=not started, lineterminator="\n")
        started = True

    return append


def _parquet_appender(handle: Any) -> Iterator[Callable[[pd.DataFrame], None]]:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    writer: ParquetWriter | None = None

    def append(frame: pd.DataFrame) -> None:
        nonlocal writer
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or ParquetWriter(handle, table.schema)
        writer.write_table(table)

    try:
        yield append
    finally:
        if writer is not None:
            writer.close()


def listed(names: Iterable[Any]) -> str:
    """Names in quotes, long lists and long names cut short."""
    shown = [shortened(name) for name in names]
    return ", ".join(shown if len(shown) <= 20 else [*shown[:18], f"… and {len(shown) - 18} more"])


def shortened(value: Any) -> str:
    """A value in quotes, cut in the middle if it is long."""
    text = str(value)
    return repr(text if len(text) <= 60 else f"{text[:40]}…{text[-10:]}")


def _quoted(path: Path) -> str:
    return repr(str(path))
