"""Dead letters as files: a JSON document a line, or a Parquet table for whoever counts them.

Both are written as the letters come, so their number is not bounded by memory.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import click

_ROWS = 1000
_TEXTS = ("payloadSnapshot", "headers", "attemptHistory")
"""What has no fixed shape is JSON in a Parquet table."""


def to_ndjson(letters: Iterable[dict[str, Any]], file: Path) -> int:
    """Write a document a line, and return how many."""
    count = 0
    with click.open_file(str(file), "w") as out:
        for letter in letters:
            out.write(f"{json.dumps(letter)}\n")
            count += 1
    return count


def to_parquet(letters: Iterable[dict[str, Any]], file: Path) -> int:
    """Write a table, and return how many rows it has."""
    try:
        import pyarrow as pa  # noqa: PLC0415  # only for this, and may be missing
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise click.ClickException(
            "Parquet needs pyarrow; install it with: pip install 'namedqueue[parquet]'"
        ) from None
    text, number = pa.string(), pa.int64()
    schema = pa.schema(
        [
            *((name, text) for name in ("eventId", "queue", "idempotencyKey", "traceId")),
            *(("attemptCount", number), ("redrives", number)),
            *((name, text) for name in ("terminalReasonCode", "terminalReasonMessage")),
            ("deadLetteredAt", pa.timestamp("ms", tz="UTC")),
            *((name, text) for name in ("state", "group", "editedFrom", "editedTo", *_TEXTS)),
        ]
    )
    count = 0
    with click.open_file(str(file), "wb") as out, pq.ParquetWriter(out, schema) as writer:
        for rows in _batches(letters):
            table = pa.Table.from_pylist(rows, schema=schema)
            writer.write_table(table)
            count += len(rows)
    return count


def _batches(letters: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    source = iter(letters)
    while rows := [_row(letter) for letter in islice(source, _ROWS)]:
        yield rows


def _row(letter: dict[str, Any]) -> dict[str, Any]:
    return {
        **letter,
        **{name: json.dumps(letter[name]) for name in _TEXTS},
        "deadLetteredAt": datetime.fromisoformat(letter["deadLetteredAt"]),
    }
