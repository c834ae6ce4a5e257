"""Looking after workers waits for nobody's broker."""

import asyncio
from typing import Any

from namedqueue_operator.drifting import Pace
from namedqueue_operator.inventory import Inventory, key_of
from namedqueue_operator.reporting import Reporter
from namedqueue_operator.tending import Tender


def _queue(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": name, "generation": 1}
    return {"kind": "NamedQueue", "metadata": {**metadata, "resourceVersion": "1"}, "spec": {}}


async def test_a_queue_that_somebody_is_at_delays_no_other() -> None:
    """Whoever brings a queue about holds its lock, for as long as a broker that hangs lets it."""
    inventory, cluster = Inventory(), None
    queues = [_queue(f"q{number}") for number in range(30)]
    for queue in queues:
        inventory.put(queue)
    tender = Tender(
        cluster,  # type: ignore[arg-type]  # nothing in it is asked for
        inventory,
        Reporter(cluster, inventory),  # type: ignore[arg-type]  # the same
        None,
        Pace(poll=0.01, drift=3600.0),
    )
    tender._restless = {key_of(queue) for queue in queues}
    busy = ("shop", "q0")
    async with inventory.lock(busy), asyncio.timeout(30):
        rounds = asyncio.create_task(tender.run())
        while tender._restless != {busy}:  # noqa: ASYNC110  # a look that finds nothing tells nobody
            await asyncio.sleep(0.01)
        rounds.cancel()
    await asyncio.gather(rounds, return_exceptions=True)
