"""Looks at a broker, shared by those who need one at the same time.

A look lists a whole vhost, whatever the number of queues that asked for it. When an operator starts
with five hundred queues, all of them ask within a second; each has to see what the broker has after
it asked, and one look that begins then is good for all of them.
"""

import asyncio
from collections import defaultdict

from namedqueue_operator.management import Management
from namedqueue_operator.observing import Look, look


class Looks:
    """One look at a time at each vhost; whoever asks during one shares the next."""

    def __init__(self, management: Management, *, users: bool) -> None:
        self._management = management
        self._users = users
        self._turns: defaultdict[str | None, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._next: dict[str | None, asyncio.Task[Look]] = {}

    async def look(self, vhost: str | None) -> Look:
        """Return a look at a vhost, or at all, that began after this call."""
        if vhost not in self._next:
            self._next[vhost] = asyncio.create_task(self._taken(vhost))
        return await asyncio.shield(self._next[vhost])

    async def _taken(self, vhost: str | None) -> Look:
        async with self._turns[vhost]:
            del self._next[vhost]  # who asks from here on may know of something that we miss
            return await look(self._management, vhost, users=self._users)
