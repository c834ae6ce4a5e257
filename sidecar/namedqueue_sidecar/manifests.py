"""The queues that a sidecar serves, as the operator mounts them: a folder of JSON manifests.

Beside a manifest there may be a file `replicas`: how many pods share the queue's rate limit. The
operator writes it whenever that number changes.

A mounted ConfigMap changes by a swap of symbolic links, so the whole folder is read anew when
anything about it differs. A manifest that cannot be read keeps the last good state and is logged:
a running worker must not stop over a typing error.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import orjson

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import Invalid, read
from namedqueue_sidecar.brokers.port import QueueKey

_log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0
_NUMBER = re.compile(r"[0-9]{1,6}")

_REPLICAS = "replicas"


class Mounted(NamedTuple):
    """The queues, and this pod's share of the rate limit of each."""

    queues: list[NamedQueue]
    shares: Mapping[QueueKey, float]


Changed: TypeAlias = Callable[[Mounted], Awaitable[None]]


def load(folder: Path, pattern: str = "*.json") -> Mounted:
    """Read every such file of the folder, or raise a ValueError that names what cannot be read.

    A folder that is not there is not an empty one, which would end the work on every queue.
    """
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; mount the queues there as JSON files")
    mounted = Mounted([], shares := {})
    for file in sorted(folder.glob(pattern)):
        try:
            manifest = read(orjson.loads(file.read_bytes()))
        except (orjson.JSONDecodeError, Invalid) as error:
            raise ValueError(f"{file.name}: {error}") from None
        if isinstance(manifest, NamedQueue):
            mounted.queues.append(manifest)
            shares[QueueKey(manifest.metadata.namespace, manifest.metadata.name)] = _share(file)
    return mounted


async def watch(folder: Path, changed: Changed, pattern: str = "*.json") -> None:
    """Call `changed` with all queues, now and whenever the folder differs; never returns."""
    seen = None
    while True:
        try:
            now = _fingerprint(folder, pattern)
            if now != seen:
                seen = now
                await changed(load(folder, pattern))
                _log.info("manifests applied", extra={"action": "reload"})
        except FileNotFoundError:
            seen = None  # the mount is being swapped under our eyes: look again
        except (OSError, ValueError) as error:
            _log.error("manifests not applied: %s", error, extra={"action": "reload"})
        await asyncio.sleep(_POLL_SECONDS)


def _share(manifest: Path) -> float:
    """Return the pod's share: all of it where nobody says how many pods there are."""
    try:
        text = (manifest.parent / _REPLICAS).read_text().strip()
    except FileNotFoundError:
        return 1.0
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{manifest.parent / _REPLICAS} holds {text[:20]!r}, which is no number")
    return 1 / max(1, int(text))


def _fingerprint(folder: Path, pattern: str) -> tuple[tuple[str, int, int], ...]:
    files = sorted(folder.glob(pattern))
    beside = {file.parent / _REPLICAS for file in files}
    files += sorted(file for file in beside if file.exists())
    stats = [(str(file), file.stat()) for file in files]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
