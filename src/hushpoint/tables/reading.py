"""Reading tables: CSV and CSV.gz with the standard library, Parquet through pandas."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

CHUNK = 50_000
_EXACT = 2**53  # up to here a floating-point number is a whole one to the last digit


def read_table(path: str | Path) -> Any:
    """A whole table: a dictionary of columns, each a list of texts, or a data frame for Parquet."""
    chunks = list(read_chunks(path))
    if len(chunks) == 1:
        return chunks[0]
    return {name: [cell for chunk in chunks for cell in chunk[name]] for name in chunks[0]}


def read_chunks(path: str | Path, size: int = CHUNK) -> Iterator[Any]:
    """A table in parts of at most ``size`` rows, so that its text need not be in memory at once.

    Cells lose the blanks around them. The separator is a comma, or what the header has instead: a semicolon or a tab.
    """
    place = Path(path)
    if not place.is_file():
        raise ValueError(f"there is no file {str(path)!r}. Name a .csv, .csv.gz or .parquet file.")
    if place.suffix in (".parquet", ".pq"):
        yield _parquet(place)
        return
    try:
        with _opened(place) as text:
            yield from _parsed(text, place.name, size)
    except UnicodeDecodeError:
        raise ValueError(f"{place.name!r} is not UTF-8 text. Save it as UTF-8.") from None
    except (csv.Error, EOFError, gzip.BadGzipFile, zlib.error):
        raise ValueError(f"{place.name!r} is not a whole CSV file. Write it again.") from None
    except OSError as error:
        raise ValueError(f"{place.name!r} cannot be read: {error.strerror}.") from None


def _opened(place: Path) -> IO[str]:
    if place.suffix == ".gz":
        return gzip.open(place, "rt", encoding="utf-8-sig", newline="")
    return place.open(encoding="utf-8-sig", newline="")


def _parsed(text: IO[str], name: str, size: int) -> Iterator[dict[str, list[str]]]:
    first = text.readline()
    text.seek(0)
    separator = next((mark for mark in ",;\t" if mark in first), ",")
    reader = csv.reader(text, delimiter=separator, skipinitialspace=True)
    header = [cell.strip() for cell in next(reader, [])]
    if not any(header):
        raise ValueError(f"{name!r} has no header. Its first line names the columns.")
    if "" in header or len(set(header)) != len(header):
        raise ValueError(f"{name!r} has a column without a name, or a name twice. Name each column once.")
    blank = [[""]] if len(header) == 1 else []  # in a file of one column a blank line is a row with a missing cell
    rows = 0
    while part := list(islice(reader, size)):
        part = [whole for row in part for whole in ([row] if row else blank)]
        if any(len(row) != len(header) for row in part):
            wrong = next(i for i, row in enumerate(part) if len(row) != len(header))
            raise ValueError(
                f"row {rows + wrong + 1} of {name!r} has {len(part[wrong])} cells and the header {len(header)}. "
                "Quote cells that hold the separator."
            )
        rows += len(part)
        if part:
            columns = zip(*part, strict=True)
            yield {title: list(map(str.strip, column)) for title, column in zip(header, columns, strict=True)}
    if not rows:
        raise ValueError(f"{name!r} has a header and no rows.")


def _parquet(place: Path) -> Any:
    try:
        import pandas
    except ImportError:
        raise ValueError("Parquet needs pandas and pyarrow. Install both, or save the table as CSV.") from None
    try:
        table = pandas.read_parquet(place)
        # Beside a missing cell whole numbers are read as floating-point ones, which lose the last digits of long ones.
        floats = table.select_dtypes("float")
        long = list(floats.columns[(floats.abs() >= _EXACT).any()])
        if long:
            read = pandas.read_parquet(place, columns=long, dtype_backend="numpy_nullable")
            whole = read.select_dtypes("integer").astype(object)  # NumPy would make floats of them again
            table[list(whole.columns)] = whole
        return table
    except ImportError:
        raise ValueError("Parquet needs pyarrow. Install it, or save the table as CSV.") from None
    except Exception:
        raise ValueError(f"{place.name!r} is not a whole Parquet file. Write it again.") from None
