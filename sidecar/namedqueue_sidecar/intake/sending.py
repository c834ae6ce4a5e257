"""Jobs to the broker: what many requests bring in one turn of the event loop goes as one batch."""

import asyncio
from collections.abc import Sequence

from namedqueue_sidecar.brokers.port import Broker, Publication, Verdict
from namedqueue_sidecar.intake.problems import Problem

_REFUSALS = {
    Verdict.UNROUTABLE: (404, "UNROUTABLE", "no queue takes this message"),
    Verdict.FULL: (429, "QUEUE_FULL", "the queue is at its spec.durable.maxLength; try later"),
    Verdict.UNKNOWN: (
        503,
        "BROKER_UNAVAILABLE",
        "the broker did not confirm in time, so this may or may not have arrived; send it again",
    ),
}
_RETRY_AFTER_SECONDS = 1


class Sending:
    """Publishes for callers that wait for the broker's word."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: list[tuple[Sequence[Publication], asyncio.Future[Sequence[Verdict]]]] = []

    async def send(self, publications: Sequence[Publication]) -> Sequence[Verdict]:
        """Return the broker's verdict on each; refuse at once while there is no broker."""
        reason = self._broker.unavailable
        if reason is not None:
            raise Problem(503, "BROKER_UNAVAILABLE", reason, retry_after=_RETRY_AFTER_SECONDS)
        loop = asyncio.get_running_loop()
        verdicts: asyncio.Future[Sequence[Verdict]] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._flush)
        self._waiting.append((publications, verdicts))
        return await verdicts

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []

        def settled(verdicts: Sequence[Verdict]) -> None:
            position = 0
            for publications, future in waiting:
                end = position + len(publications)
                if not future.done():
                    future.set_result(verdicts[position:end])
                position = end

        self._broker.publish([one for batch, _ in waiting for one in batch], settled)


def refusal(verdict: Verdict) -> Problem | None:
    """Return the problem that a verdict means for a caller; None if it was confirmed."""
    if verdict is Verdict.CONFIRMED:
        return None
    status, code, detail = _REFUSALS[verdict]
    return Problem(
        status, code, detail, retry_after=_RETRY_AFTER_SECONDS if status in (429, 503) else None
    )
