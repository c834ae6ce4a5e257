"""`python -m namedqueue_sidecar redrive`: one redrive as a Kubernetes Job.

It is given what a worker's sidecar is given for a queue, one binding folder, and a QueueRedrive as
a file. It may be killed at any moment and started again with the same redrive: it goes on, sends no
job twice, and counts what its predecessors have sent. `docs/decisions/0013-redrive.md` has the
interface that the operator relies on.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Self

import uvloop
from aiormq.exceptions import AMQPError

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import read
from namedqueue.api.redrive import QueueRedriveSpec
from namedqueue.deadletters import DeadLetterRecord
from namedqueue_sidecar import manifests
from namedqueue_sidecar.brokers.port import Busy, QueueKey
from namedqueue_sidecar.brokers.rabbitmq.broker import RabbitMQBroker
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials
from namedqueue_sidecar.ending import end
from namedqueue_sidecar.logs import log_as_json
from namedqueue_sidecar.redriving.observing import observed
from namedqueue_sidecar.redriving.runs import Phase, Run, max_length_of
from namedqueue_sidecar.redriving.wishes import Wish
from namedqueue_sidecar.store.mounts import store_beside, store_in
from namedqueue_sidecar.store.port import Store
from namedqueue_sidecar.triaging.records import Records
from namedqueue_sidecar.triaging.writing import Writing

CODES: Final = {Phase.SUCCEEDED: 0, Phase.FAILED: 1, Phase.ABORTED: 3, Phase.STOPPED: 4}
CANNOT_START: Final = 2
_TROUBLE: Final = (AMQPError, OSError, RuntimeError, TimeoutError, Busy)
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - in a pod: its own address
_PATIENCE: Final = 60.0
_PAUSE: Final = 1.0
_STORE_SECONDS: Final = 30.0


def main(arguments: list[str]) -> int:
    """Run a redrive to its end and return what its end means."""
    options = _options(arguments)
    log_as_json(options.log_level)
    try:
        redrive = _Redrive.read(options.redrive)
        queue = _queue(options.binding, redrive.spec.queue)
        Credentials.from_folder(options.binding)
        store = store_in(options.store or store_beside(options.binding))
    except (OSError, ValueError) as error:
        print(f"namedqueue_sidecar redrive: {error}", file=sys.stderr)  # noqa: T201
        return CANNOT_START
    return CODES[uvloop.run(_Job(options, redrive, queue, store).run())]


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m namedqueue_sidecar redrive",
        description="Send dead letters back to their queue, as a QueueRedrive says.",
        epilog="exit codes: 0 all were sent; 1 the broker was away for too long; 2 cannot start; "
        "3 aborted, for too many came straight back; 4 stopped, by SIGTERM or a full queue",
    )
    add = parser.add_argument
    add(
        "--binding",
        type=Path,
        required=True,
        metavar="DIR",
        help="the NamedQueue as a JSON file, with the keys of a Service Binding Secret",
    )
    add("--redrive", type=Path, required=True, metavar="FILE", help="the QueueRedrive, as JSON")
    add("--store", type=Path, metavar="DIR", help="a Secret of a PostgreSQL, to mark what was sent")
    add("--summary", type=Path, metavar="FILE", help="where the result goes: /dev/termination-log")
    add("--every", type=float, default=1.0, metavar="SECONDS", help="between lines (%(default)s)")
    add("--give-up", type=float, default=600.0, metavar="SECONDS", help="without a broker")
    add("--observe-port", type=int, default=0, help="where it tells how far it is; 0 for nowhere")
    add("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    return parser.parse_args(arguments)


class _Job:
    """One run, from the first line to the summary."""

    def __init__(
        self,
        options: argparse.Namespace,
        redrive: "_Redrive",
        queue: NamedQueue,
        store: Callable[[], Store] | None,
    ) -> None:
        self._options = options
        self._store = store
        self._key = QueueKey.of(queue)
        self._broker = RabbitMQBroker(
            partial(Credentials.from_folder, options.binding),
            vhost=_vhost(options.binding) or f"nq-{queue.metadata.namespace}",
            name=f"redrive {redrive.name}",
        )
        self._run = Run(
            redrive.name,
            Wish.of(redrive.spec),
            most_ready=max_length_of(queue),
            moved=self._mark,
            kept=self._keep,
        )
        self._marking: Writing[DeadLetterRecord] | None = None

    async def run(self) -> Phase:
        """Redrive, through whatever happens to the broker, and return how it ended."""
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sign, self._run.stop)
        telling = asyncio.create_task(self._tell())
        async with contextlib.AsyncExitStack() as observers:
            observers.push_async_callback(end, telling)
            if port := self._options.observe_port:
                await observers.enter_async_context(observed(self._line, _EVERYWHERE, port))
            if self._store is not None:
                await self._mark_in(self._store(), observers)
            await self._through_trouble()
        await self._keep(self._run)
        return self._run.phase

    async def _through_trouble(self) -> None:
        """Try again until it is done, or nothing has moved for too long."""
        loop, letters = asyncio.get_running_loop(), self._broker.dead_letters(self._key)
        since, sent = loop.time(), -1
        while True:
            try:
                if self._run.matched is None:
                    await self._run.count(letters)
                await self._run.go(letters, _PATIENCE)
            except _TROUBLE as trouble:
                self._run.why = _sentence(trouble)
            except LookupError as missing:
                self._run.fail(str(missing))
                return
            else:
                return
            if self._run.redriven > sent:
                since, sent = loop.time(), self._run.redriven
            if loop.time() - since > self._options.give_up:
                self._run.fail(self._run.why)
                return
            await asyncio.sleep(_PAUSE)

    async def _mark_in(self, store: Store, until: contextlib.AsyncExitStack) -> None:
        """Mark what is sent in the store, if it is found soon; jobs do not wait for records."""
        until.push_async_callback(store.close)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STORE_SECONDS):
                await store.open()
        records = Records(self._broker, store, {})
        self._marking = records.marking(self._key, self._run.name)
        until.push_async_callback(self._marking.flush)

    def _mark(self, letters: Sequence[DeadLetterRecord]) -> None:
        if self._marking is not None:
            self._marking.add(letters)

    async def _tell(self) -> None:
        """Print a line whenever something has moved; never returns."""
        told = ""
        while True:
            line = self._line()
            if line != told:
                print(line, flush=True)  # noqa: T201 - this is the Job's output
                told = line
            await asyncio.sleep(self._options.every)

    async def _keep(self, _: Run) -> None:
        line = self._line()
        print(line, flush=True)  # noqa: T201 - this is the Job's output
        if self._options.summary is not None:
            self._options.summary.write_text(line)

    def _line(self) -> str:
        return json.dumps({"queue": self._key.name, **self._run.document()})


class _Redrive(NamedTuple):
    """What was asked for; the name is the object's uid, so another of its name is another."""

    name: str
    spec: QueueRedriveSpec

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read it from a file, or raise a ValueError about what is wrong there."""
        document = json.loads(file.read_bytes())
        manifest = read(document)
        if isinstance(manifest, NamedQueue):
            raise ValueError(f"{file} holds a NamedQueue; a QueueRedrive is needed")  # noqa: TRY004
        metadata = manifest.metadata
        return cls(document["metadata"].get("uid") or metadata.name, manifest.spec)


def _queue(folder: Path, name: str) -> NamedQueue:
    found = [queue for queue in manifests.load(folder).queues if queue.metadata.name == name]
    if not found:
        raise ValueError(f"{folder} does not hold the NamedQueue {name}, which is to be redriven")
    return found[0]


def _vhost(folder: Path) -> str | None:
    file = folder / "vhost"
    return file.read_text().strip() if file.exists() else None


def _sentence(trouble: Exception) -> str:
    """Say what is wrong in words of our own: a library's may contain the address."""
    if isinstance(trouble, Busy | ConnectionError):
        return str(trouble) or "the connection to the broker is gone"
    return "the broker cannot be reached"
