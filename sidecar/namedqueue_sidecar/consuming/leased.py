"""The leases under way, each with its deadline, and for a while how the others ended."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from namedqueue import retry
from namedqueue_sidecar.consuming.deadlines import Deadlines
from namedqueue_sidecar.consuming.lease import End, Lease, LeaseEndedError

REMEMBERED: Final = 10_000


class Leased:
    """Leases by their ids; `expired` is called with each whose time is up."""

    def __init__(self, expired: Callable[[Lease], None]) -> None:
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._leases: dict[str, Lease] = {}
        self._ended: dict[str, End] = {}
        self._deadlines = Deadlines(self._time_is_up)

    def __iter__(self) -> Iterator[Lease]:
        return iter(tuple(self._leases.values()))

    def __contains__(self, lease: Lease) -> bool:
        return self._leases.get(lease.id) is lease

    def add(self, lease: Lease) -> None:
        """Begin a lease."""
        self._leases[lease.id] = lease
        self._deadlines.set(lease.id, lease.began + lease.visibility)

    def find(self, lease_id: str) -> Lease:
        """Return a lease; one that is not under way is a LeaseEndedError."""
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseEndedError(self._ended.get(lease_id))
        return lease

    def extend(self, lease: Lease, visibility: float | None, longest: float) -> None:
        """Give a lease more time from now on, up to the longest since it began."""
        wanted = self._loop.time() + (visibility or lease.visibility)
        moment = min(wanted, lease.began + longest)
        lease.until = lease.began_at + round((moment - lease.began) * 1000)
        self._deadlines.set(lease.id, moment)

    def stop_clock(self, lease: Lease) -> None:
        """Let a lease be under way without a deadline: its worker has finished."""
        self._deadlines.drop(lease.id)

    def end(self, lease: Lease, how: retry.Decision | End) -> None:
        """Forget a lease and tell whoever waits for its end."""
        if lease in self:
            self._remember(lease, how if isinstance(how, End) else End.FINISHED)
        lease.settle(how)

    def close(self) -> None:
        """Let no more leases expire."""
        self._deadlines.close()

    def _time_is_up(self, lease_id: str) -> None:
        lease = self._leases[lease_id]
        self._remember(lease, End.EXPIRED)
        self._expired(lease)

    def _remember(self, lease: Lease, end: End) -> None:
        del self._leases[lease.id]
        self._deadlines.drop(lease.id)
        self._ended[lease.id] = end
        while len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]
