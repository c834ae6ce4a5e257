"""How fast jobs come and go, from what was seen.

Both rates are ratios of sums over many looks, so that one odd look moves them little. Arrivals are
what is left to explain: the growth of the backlog plus what was acknowledged, over the last minute.
Retries count each time they come back, as they do for the workers.
"""

from math import inf

from namedqueue_operator.scaling.windows import Window, counted


def arrival(window: Window) -> float:
    """Return the jobs that came in a second."""
    first, last = window.samples[0], window.samples[-1]
    if last.at <= first.at:
        return 0.0
    grown = last.jobs - first.jobs + counted(first, last)
    return max(0.0, grown / (last.at - first.at))


def service(window: Window) -> float:
    """Return the jobs that one replica finishes in a second, while it never waits for one.

    One more than were counted are taken to be all but finished: before anything is known the rate
    is without bound, and it falls the longer nothing comes. So ignorance starts no crowd, and jobs
    that take minutes still get one in time.
    """
    seconds = sum(stretch.replica_seconds for stretch in window.busy)
    return (sum(stretch.finished for stretch in window.busy) + 1) / seconds if seconds else inf
