"""What a pod was given: a folder for each queue, with its manifest and an account on its broker.

    consume/<queue>/        the jobs are worked off, or leased, and others may be sent
    consume/<queue>/store/  the address of the store, the same for all; without one it is not there
    produce/<queue>/        jobs may be sent, and topics published

The operator mounts them so. Which queues there are is fixed for the life of a pod. What is in their
folders may change: manifests and passwords are followed while everything runs; a queue that moved
to another broker or vhost, or a store that came or went, ends the process in good order, and the
kubelet starts it again with what there is then.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from namedqueue_sidecar.brokers.port import QueueKey
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials
from namedqueue_sidecar.brokers.several import SeveralBrokers
from namedqueue_sidecar.store.mounts import store_beside

CONSUME: Final = "consume"
PRODUCE: Final = "produce"
_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Place:
    """Where a queue lives."""

    host: str
    port: int
    vhost: str


@dataclass(frozen=True)
class Bindings:
    """The folders of a mount, by queue and role, and what they led to at the start."""

    namespace: str
    consumed: Mapping[QueueKey, Path]
    produced: Mapping[QueueKey, Path]
    places: Mapping[Path, Place]
    store: Path | None

    @classmethod
    def find(cls, root: Path, namespace: str) -> Self:
        """Read a mount, or raise a ValueError that says what is missing in it."""
        found = {
            role: {QueueKey(namespace, each.name): each for each in sorted(root.glob(f"{role}/*"))}
            for role in (CONSUME, PRODUCE)
        }
        folders = [*found[CONSUME].values(), *found[PRODUCE].values()]
        if not folders:
            raise ValueError(f"{root} holds neither {CONSUME}/<queue> nor {PRODUCE}/<queue>")
        places = {folder: _place(folder) for folder in folders}
        return cls(namespace, found[CONSUME], found[PRODUCE], places, _store(found[CONSUME]))

    @property
    def only_produced(self) -> frozenset[QueueKey]:
        """The queues whose jobs are for others to work off."""
        return frozenset(self.produced.keys() - self.consumed.keys())

    def brokers(self) -> SeveralBrokers:
        """Return the way to each queue: the consumer's account may do all that its queue needs."""
        ways = {key: self._broker(folder) for key, folder in self.consumed.items()}
        senders = {key: self._broker(folder) for key, folder in self.produced.items()}
        return SeveralBrokers({**senders, **ways}, next(iter(senders.values()), None))

    async def moved(self) -> None:
        """Return when a queue lives elsewhere than at the start, or the store came or went."""
        while self._stays():  # noqa: ASYNC110  # a mount sends no event
            await asyncio.sleep(_POLL_SECONDS)

    def _stays(self) -> bool:
        same_store = _store(self.consumed) is None if self.store is None else self.store.is_dir()
        return same_store and all(_is_at(*known) for known in self.places.items())

    def _broker(self, folder: Path) -> RabbitMQBroker:
        credentials = partial(Credentials.from_folder, folder)
        return RabbitMQBroker(credentials, vhost=self.places[folder].vhost)


def _store(consumed: Mapping[QueueKey, Path]) -> Path | None:
    return next(filter(None, map(store_beside, consumed.values())), None)


def _place(folder: Path) -> Place:
    credentials = Credentials.from_folder(folder)
    try:
        vhost = (folder / "vhost").read_text().strip()
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no vhost") from None
    return Place(credentials.host, credentials.port, vhost)


def _is_at(folder: Path, place: Place) -> bool:
    try:
        return _place(folder) == place
    except (OSError, ValueError):
        return True  # the mount is being swapped under our eyes, or is broken: not a move
