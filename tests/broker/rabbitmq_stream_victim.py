"""A process that holds a group of a stream, reads and commits until it is killed.

    NQ_VICTIM_URL=amqp://… python rabbitmq_stream_victim.py VHOST

It says `granted`, and then each cursor that is safe.
"""

import asyncio
import os
import sys
from collections.abc import Sequence

from namedqueue_sidecar.brokers.port import Entry, Log, QueueKey
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials

STREAM = QueueKey("shop", "orders")
GROUP = "audit"


class Victim:
    """A holder that commits each message by itself."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.read: asyncio.Queue[int] = asyncio.Queue()

    def granted(self, cursor: int | None) -> None:
        say("granted")
        self.reading = self.log.read(cursor or 0, self._see, ahead=10)

    def moved(self, cursor: int) -> None:
        raise AssertionError(f"nobody seeks to {cursor}")

    def revoked(self) -> None:
        say("revoked")

    def _see(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.read.put_nowait(entry.offset)

    async def work(self) -> None:
        while True:
            offset = await self.read.get()
            await self.log.commit(GROUP, offset + 1)
            say(str(offset + 1))
            self.reading.done(1)


def say(what: str) -> None:
    print(what, flush=True)  # noqa: T201 - the killer listens


async def main() -> None:
    credentials = Credentials.from_url(os.environ["NQ_VICTIM_URL"])
    broker = RabbitMQBroker(lambda: credentials, vhost=sys.argv[1], name="victim")
    await broker.open()
    log = broker.log(STREAM)
    victim = Victim(log)
    log.hold(GROUP, victim)
    await victim.work()


if __name__ == "__main__":
    asyncio.run(main())
