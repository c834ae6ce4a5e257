"""The API while its broker is away."""

from typing import Any

from broker.http_api.orders import BATCH, MESSAGES, ORDERS
from fixtures.planes import stage
from namedqueue_sidecar.brokers.port import Broker, Depth, QueueKey


class Away:
    """A broker that is away while `reason` says so."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.reason: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    @property
    def unavailable(self) -> str | None:
        return self.reason or self._broker.unavailable

    def unavailable_for(self, _queue: QueueKey | None) -> str | None:
        return self.unavailable

    async def depth(self, queue: QueueKey) -> Depth | None:
        if self.reason:
            raise ConnectionError(self.reason)
        return await self._broker.depth(queue)


async def test_while_the_broker_is_away_everything_is_a_503_and_then_it_goes_on() -> None:
    wrapped: list[Any] = []

    def wrap(broker: Broker) -> Broker:
        wrapped.append(Away(broker))
        return wrapped[0]  # type: ignore[no-any-return]  # whatever it does not say, the broker does

    async with stage(wrap) as scene:
        await scene.apply(scene.queue(worker=False, subscriptions=[{"topic": "a"}]))
        wrapped[0].reason = "memory alarm on rabbit-0"
        for path, body in (
            (MESSAGES, b"1"),
            (BATCH, b'[{"payload":1}]'),
            ("/v1/topics/a/messages", b"1"),
            (f"{ORDERS}/redrive", b"{}"),
        ):
            refused = await scene.api.post(path, body)
            assert (refused.status, refused.code) == (503, "BROKER_UNAVAILABLE")
            assert refused.headers["Retry-After"] == "1"
            assert "memory alarm" in refused.json["detail"]
        for path in ("/v1/queues", ORDERS):
            assert (await scene.api.get(path)).code == "BROKER_UNAVAILABLE"
        unready = await scene.api.get("/healthz/ready")
        assert (unready.status, unready.json["status"]) == (503, "not ready")
        assert unready.json["missing"] == ["broker: memory alarm on rabbit-0"]
        wrapped[0].reason = None
        assert (await scene.api.post(MESSAGES, b"1")).status == 202
        assert (await scene.api.get("/healthz/ready")).status == 200
