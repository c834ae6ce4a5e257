"""Jobs to the broker: what many requests bring in one turn of the event loop goes as one batch."""

import asyncio
from collections.abc import Sequence

from prometheus_client import Counter

from namedqueue_sidecar.brokers.port import Broker, Publication, Topic, Verdict
from namedqueue_sidecar.intake.problems import Problem, full, unavailable

_sent = Counter(
    "namedqueue_sent", "Jobs that callers sent, by what the broker said of them.", ("verdict",)
)
_SENT = {verdict: _sent.labels(verdict.value) for verdict in Verdict}


class Sending:
    """Publishes for callers that wait for the broker's word."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: list[tuple[Sequence[Publication], asyncio.Future[Sequence[Verdict]]]] = []

    async def send(self, publications: Sequence[Publication]) -> Sequence[Verdict]:
        """Return the broker's verdict on each; refuse at once while there is no broker.

        They all go the same way: to one queue, or to topics.
        """
        if not publications:
            return ()
        first = publications[0]
        reason = self._broker.unavailable_for(None if isinstance(first, Topic) else first.queue)
        if reason is not None:
            raise unavailable(reason)
        loop = asyncio.get_running_loop()
        verdicts: asyncio.Future[Sequence[Verdict]] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.append((publications, verdicts))
        return await verdicts

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []

        def settled(verdicts: Sequence[Verdict]) -> None:
            for verdict, counted in _SENT.items():
                counted.inc(verdicts.count(verdict))
            position = 0
            for publications, future in waiting:
                end = position + len(publications)
                if not future.done():
                    future.set_result(verdicts[position:end])
                position = end

        try:
            self._broker.publish([one for batch, _ in waiting for one in batch], settled)
        except Exception as fault:  # noqa: BLE001  # a caller must not wait for ever over a fault
            for _, future in waiting:
                if not future.done():
                    future.set_exception(fault)


def refusal(verdict: Verdict) -> Problem | None:
    """Return the problem that a verdict means for a caller; None if it was confirmed."""
    match verdict:
        case Verdict.CONFIRMED:
            return None
        case Verdict.UNROUTABLE:
            return Problem(404, "UNROUTABLE", "no queue takes this message")
        case Verdict.FULL:
            return full("the queue is at its spec.durable.maxLength; try later")
        case Verdict.UNKNOWN:
            return unavailable(
                "the broker did not confirm in time, so this may or may not have arrived; "
                "send it again"
            )
