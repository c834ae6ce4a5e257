"""Looks are shared by those who ask at the same time, and never older than the question."""

import asyncio
from typing import Any

from namedqueue_operator.looks import Looks
from namedqueue_operator.observing import EVERYTHING, Look

_VHOST = "shop"


class _SlowBroker:
    """Answers slowly, and lets nobody in but a user whose name is the number of the look."""

    def __init__(self) -> None:
        self.looks: list[float] = []

    async def listed(self, kind: str, vhost: str | None = None) -> tuple[dict[str, Any], ...]:
        if kind != "exchanges":
            return ()
        self.looks.append(asyncio.get_running_loop().time())
        await _turns(20)
        return ({"name": "x", "vhost": vhost},)

    async def permissions(self, vhost: str) -> tuple[dict[str, Any], ...]:
        rights = dict.fromkeys(("configure", "write", "read"), EVERYTHING)
        return ({"user": str(len(self.looks) - 1), "vhost": vhost, **rights},)

    def began(self, look: Look) -> float:
        """Tell when a look began."""
        [number] = [at for at in range(len(self.looks)) if look.admits(str(at), _VHOST)]
        return self.looks[number]


async def _turns(count: int) -> None:
    """Let the others have so many turns: unlike seconds, as many on a busy machine."""
    for _ in range(count):
        await asyncio.sleep(0)


def _looks(broker: _SlowBroker) -> Looks:
    return Looks(broker, users=True)  # type: ignore[arg-type]  # as much of a client as it needs


def test_five_hundred_who_ask_at_once_cost_one_look() -> None:
    broker = _SlowBroker()

    async def ask() -> None:
        looks = _looks(broker)
        await asyncio.gather(*(looks.look(_VHOST) for _ in range(500)))

    asyncio.run(ask())
    assert len(broker.looks) == 1


def test_nobody_gets_a_look_that_began_before_the_question() -> None:
    broker = _SlowBroker()

    async def ask(looks: Looks) -> float:
        asked = asyncio.get_running_loop().time()
        return broker.began(await looks.look(_VHOST)) - asked

    async def ask_in_turn() -> list[float]:
        looks = _looks(broker)
        asking = []
        for _ in range(40):
            asking.append(asyncio.create_task(ask(looks)))
            await _turns(3)
        return await asyncio.gather(*asking)

    assert min(asyncio.run(ask_in_turn())) >= 0
    assert len(broker.looks) < 20
