"""A process that enqueues and works on a builtin file until it is killed, and notes all it does.

    python builtin_victim.py FOLDER LOG

A line on its input with the number of a round makes it fork a victim and say the victim's pid; so
the imports, which take longer than a victim lives, are paid once. When the victim is dead it says
the exit code.

Each line of the log is one fact, written by a single `write` before anything else is done, so a
kill leaves the facts in order and at most one fact short:

    open                  the file is open and the work begins
    try KEY, confirm KEY  a publication was sent, or confirmed
    deliver KEY           a job came
    ack KEY, back KEY     a delivery is about to be acknowledged, or handed back
    redrive               dead letters are about to be redriven

A KEY is `id/redrives/attempt`, with `/dead` behind it for a dead letter.
"""

# ruff: noqa: S311 - chances, not secrets

import asyncio
import os
import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import NoReturn

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.deadletters import bury
from namedqueue.envelope import Job
from namedqueue.retry import DeadLetter
from namedqueue_sidecar.brokers.builtin import BuiltinBroker
from namedqueue_sidecar.brokers.port import (
    Dead,
    Delivery,
    Main,
    Publication,
    QueueKey,
    Subscription,
    Verdict,
)
from namedqueue_sidecar.redriving.runs import Run
from namedqueue_sidecar.redriving.wishes import Wish

QUEUE = QueueKey("shop", "orders")
MANIFEST = NamedQueue.model_validate({"metadata": {"name": "orders", "namespace": "shop"}})
NOW = 1_800_000_000_000
MOST_READY = 200


def key(job: Job, *, dead: bool = False) -> str:
    return f"{job.id}/{job.redrives}/{job.attempt}{'/dead' if dead else ''}"


class Victim:
    def __init__(self, broker: BuiltinBroker, log: int, round_number: str) -> None:
        self.broker = broker
        self.log = log
        self.round = round_number
        self.held: Subscription | None = None

    def note(self, *facts: str) -> None:
        os.write(self.log, "".join(f"{fact}\n" for fact in facts).encode())

    def publish(self, batch: Sequence[Publication], confirmed: Callable[[], None]) -> None:
        keys = [_key(publication) for publication in batch]
        self.note(*(f"try {each}" for each in keys))

        def settled(verdicts: Sequence[Verdict]) -> None:
            if set(verdicts) != {Verdict.CONFIRMED}:
                raise RuntimeError(f"not confirmed: {verdicts}")
            self.note(*(f"confirm {each}" for each in keys))
            confirmed()

        self.broker.publish(batch, settled)

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.note(*(f"deliver {key(delivery.job)}" for delivery in deliveries))
        loop = asyncio.get_running_loop()
        for delivery in deliveries:
            loop.call_later(random.uniform(0, 0.004), self.work, delivery)

    def lost(self) -> None:
        raise RuntimeError("nothing is ever lost here but the process")

    def work(self, delivery: Delivery) -> None:
        job = delivery.job
        chance = random.random()
        if chance < 0.6:
            self.ack(delivery)
        elif chance < 0.7 and self.held is not None:
            self.note(f"back {key(job)}")
            self.held.hand_back([delivery])
        elif chance < 0.9 and job.attempt < 5:
            again = job._replace(attempt=job.attempt + 1)
            delay = random.choice([0, 0, 250, 500])
            self.publish([Main(QUEUE, again, delay)], partial(self.ack, delivery))
        else:
            record = bury(job, DeadLetter("HTTP_422", "no"), None, NOW)
            self.publish([Dead(QUEUE, record)], partial(self.ack, delivery))

    def ack(self, delivery: Delivery) -> None:
        self.note(f"ack {key(delivery.job)}")
        if self.held is not None:
            self.held.ack([delivery])

    async def live(self) -> None:
        await self.broker.open()
        self.note("open")
        await self.broker.declare(MANIFEST)
        self.held = self.broker.subscribe(QUEUE, self, prefetch=20)
        for number in count():
            depth = await self.broker.depth(QUEUE)
            if depth is not None and depth.ready < MOST_READY:
                size = random.choice([1, 1, 5, 20])
                jobs = [self.job(f"r{self.round}-{number}-{each}") for each in range(size)]
                self.publish([Main(QUEUE, job) for job in jobs], lambda: None)
            if number % 40 == 39:
                self.note("redrive")
                redrive = Run(f"r{self.round}-{number}", Wish(limit=5))
                await redrive.go(self.broker.dead_letters(QUEUE), patience=0)
            await asyncio.sleep(random.choice([0, 0, 0.001, 0.003]))

    @staticmethod
    def job(job_id: str) -> Job:
        payload = job_id.encode() * random.choice([1, 10, 1000])
        return Job(job_id, QUEUE.name, payload, NOW, NOW)


def _key(publication: Publication) -> str:
    match publication:
        case Main(_, job):
            return key(job)
        case Dead(_, record):
            return key(record.job, dead=True)
        case _:
            raise TypeError(publication)


def main() -> None:
    folder, log = sys.argv[1:]
    for line in sys.stdin:
        victim = os.fork()
        if victim == 0:
            live(Path(folder), log, line.strip())
        print(victim, flush=True)  # noqa: T201 - the killer waits for it
        _, status = os.waitpid(victim, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201 - and for this


def live(folder: Path, log: str, round_number: str) -> NoReturn:
    handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        asyncio.run(Victim(BuiltinBroker(folder), handle, round_number).live())
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
