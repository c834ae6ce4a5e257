"""The store that a pod is given: a mounted Secret, in the binding of a queue or by itself."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from namedqueue_sidecar.store.port import Store


def store_in(folder: Path | None) -> Callable[[], Store] | None:
    """Return what makes the store, or None without one; who needs none loads none."""
    if folder is None:
        return None
    from namedqueue_sidecar.store import addresses, sql  # noqa: PLC0415 - twenty megabytes

    addresses.from_folder(folder)
    return partial(sql.SqlStore, partial(addresses.from_folder, folder))


def store_beside(binding: Path) -> Path | None:
    """Return where the operator mounts the store for a queue's binding; None if it has none."""
    folder = binding / "store"
    return folder if folder.is_dir() else None
