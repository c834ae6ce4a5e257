"""Where `nq run` remembers keys: beside the jobs under `--data`, or in memory."""

from pathlib import Path
from typing import Final

import click

from namedqueue_sidecar.store.addresses import Sqlite
from namedqueue_sidecar.store.port import Store
from namedqueue_sidecar.store.sql import SqlStore

FILE_NAME: Final = "store.sqlite"


async def open_store(data: Path | None) -> Store:
    """Return an open store, or end the command with a sentence."""
    address = Sqlite(None if data is None else data / FILE_NAME)
    store = SqlStore(lambda: address)
    if not await store.found():
        await store.close()
        raise click.ClickException(f"no store: {store.unavailable}")
    return store
