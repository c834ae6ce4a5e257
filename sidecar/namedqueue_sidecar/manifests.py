"""The queues that a sidecar serves, as the operator mounts them: a folder of JSON manifests.

A mounted ConfigMap changes by a swap of symbolic links, so the whole folder is read anew when
anything about it differs. A manifest that cannot be read keeps the last good state and is logged:
a running worker must not stop over a typing error.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import orjson

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import Invalid, read

_log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0

Changed: TypeAlias = Callable[[list[NamedQueue]], Awaitable[None]]


def load(folder: Path) -> list[NamedQueue]:
    """Read every `*.json` of the folder, or raise a ValueError that names what cannot be read.

    A folder that is not there is not an empty one, which would end the work on every queue.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; mount the queues there as JSON files")
    queues = []
    for file in sorted(folder.glob("*.json")):
        try:
            manifest = read(orjson.loads(file.read_bytes()))
        except (orjson.JSONDecodeError, Invalid) as error:
            raise ValueError(f"{file.name}: {error}") from None
        if isinstance(manifest, NamedQueue):
            queues.append(manifest)
    return queues


async def watch(folder: Path, changed: Changed) -> None:
    """Call `changed` with all queues, now and whenever the folder differs; never returns."""
    seen = None
    while True:
        try:
            now = _fingerprint(folder)
            if now != seen:
                seen = now
                await changed(load(folder))
                _log.info("manifests applied", extra={"action": "reload"})
        except FileNotFoundError:
            seen = None  # the mount is being swapped under our eyes: look again
        except (OSError, ValueError) as error:
            _log.error("manifests not applied: %s", error, extra={"action": "reload"})
        await asyncio.sleep(_POLL_SECONDS)


def _fingerprint(folder: Path) -> tuple[tuple[str, int, int], ...]:
    stats = [(file.name, file.stat()) for file in sorted(folder.glob("*.json"))]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
