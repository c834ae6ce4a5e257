"""How a prefetch is divided over consumers.

RabbitMQ fixes a consumer's prefetch when it begins, and a prefetch of 0 means «without limit». So
a larger prefetch is a further consumer with the difference, a smaller one is fewer consumers, and
a pause is none. Jobs of consumers that are gone are still in our hands and count until they are
settled, so the bound holds through any change.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Change(NamedTuple):
    """End this many of the youngest consumers, or begin one with this prefetch."""

    ended: int = 0
    begun: int = 0


NO_CHANGE = Change()


def change(wanted: int, shares: Sequence[int], orphans: int, *, asked: bool = False) -> Change:
    """Return the next step towards the wanted prefetch; `NO_CHANGE` if there is none for now.

    `shares` are the consumers' prefetches, oldest first, and `orphans` the jobs in our hands whose
    consumer is gone. While there are orphans only a subscription without a consumer gets one, or
    each settled job would bring a new one; but `asked` for another prefetch just now, it gets one.
    """
    kept = list(shares)
    while sum(kept) > wanted:
        kept.pop()
    if len(kept) < len(shares):
        return Change(ended=len(shares) - len(kept))
    room = wanted - sum(kept) - orphans
    if room <= 0 or (orphans and kept and not asked):
        return NO_CHANGE
    return Change(begun=room)
