"""Writes rows as CSV or Parquet, piece by piece, so that their number takes no memory."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from typing_extensions import override

from slaq.cli.display.job_rows import RowField
from slaq.core.extras import needs
from slaq.core.visible import visible
from slaq.detection.plain_values import number

#: Rows written at a time.
BATCH = 20_000
#: The beginning of what spreadsheets compute, as soon as they open a file.
_FORMULA = re.compile(r"\s*[=+@-]")


def csv_pieces(fields: Sequence[RowField], rows: Iterable[Any]) -> Iterator[bytes]:
    """Yield CSV with a header; the unknown is nothing.

    Control characters in texts are written as escapes, and a text that a spreadsheet would take for a formula
    begins with an apostrophe.
    """
    yield _lines([[field.name for field in fields]])
    for batch in _batches(rows):
        yield _lines([_cell(field.value(row)) for field in fields] for row in batch)


def parquet_pieces(fields: Sequence[RowField], rows: Iterable[Any]) -> Iterator[bytes]:
    """Yield a Parquet file."""
    with needs("parquet"):
        import pyarrow
        from pyarrow import parquet
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(field.name, types[field.kind]) for field in fields])
    written = _Written()
    with parquet.ParquetWriter(written, schema) as writer:
        for batch in _batches(rows):
            columns = {field.name: [field.value(row) for row in batch] for field in fields}
            writer.write_table(pyarrow.table(columns, schema=schema))
            yield written.taken()
    yield written.taken()


class _Written(io.RawIOBase):
    """A file that hands out what was written to it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    @override
    def writable(self) -> bool:
        return True

    @override
    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the rows, many at a time."""
    line = iter(rows)
    while batch := list(islice(line, BATCH)):
        yield batch


def _lines(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return value
    return f"'{visible(value)}" if _FORMULA.match(value) and number(value) is None else visible(value)
