"""A process that writes a stream into a builtin file and follows it, until it is killed.

    python stream_victim.py FOLDER LOG

Each line of the log is one fact, written by a single `write` before anything else is done:

    open          the file is open and the work begins
    sent N        message N is confirmed
    done OFFSET N the app is about to answer for message N
    kept CURSOR   a commit of the group has returned
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.envelope import Job
from namedqueue.outcomes import Answer
from namedqueue_sidecar.app.port import Call, Done
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import Main, QueueKey, Verdict
from namedqueue_sidecar.consuming.streaming import StreamWorker
from namedqueue_sidecar.consuming.workplace import Workplace

QUEUE = QueueKey("shop", "events")
MANIFEST = NamedQueue.model_validate(
    {
        "metadata": {"name": QUEUE.name, "namespace": QUEUE.namespace},
        "spec": {
            "type": "stream",
            "stream": {"consumers": [{"group": "audit"}]},
            "worker": {"port": 8080},
        },
    }
)
NOW = 1_800_000_000_000


class Victim:
    """The app, the producer and the one who takes notes."""

    def __init__(self, broker: BuiltinBroker, log: int) -> None:
        self.broker = broker
        self.log = log

    def note(self, fact: str) -> None:
        os.write(self.log, f"{fact}\n".encode())

    def post(self, call: Call, done: Done) -> None:
        self.note(f"done {call.headers['NQ-Offset']} {call.body.decode()}")
        asyncio.get_running_loop().call_later(0.002, done, Answer(200))

    async def ready(self) -> bool:
        return True

    async def close(self) -> None:
        pass

    async def live(self) -> None:
        await self.broker.open()
        await self.broker.declare(MANIFEST)
        self.note("open")
        worker = StreamWorker(Workplace(MANIFEST, self.broker, self))
        self._note_commits(worker.groups["audit"])
        worker.start()
        _, first = await self.broker.log(QUEUE).span()
        for number in count(first):
            await self._send(number)

    def _note_commits(self, group: Any) -> None:
        committed = group.tally.committed

        def noted(cursor: int) -> None:
            self.note(f"kept {cursor}")
            committed(cursor)

        group.tally.committed = noted

    async def _send(self, number: int) -> None:
        confirmed = asyncio.get_running_loop().create_future()

        def settled(verdicts: Sequence[Verdict]) -> None:
            if list(verdicts) != [Verdict.CONFIRMED]:
                raise RuntimeError(f"not confirmed: {verdicts}")
            self.note(f"sent {number}")
            confirmed.set_result(None)

        job = Job(f"m-{number}", QUEUE.name, str(number).encode(), NOW, NOW)
        self.broker.publish([Main(QUEUE, job)], settled)
        await confirmed


if __name__ == "__main__":
    handle = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    asyncio.run(Victim(BuiltinBroker(Path(sys.argv[1])), handle).live())
