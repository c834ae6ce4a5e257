"""What a NamedQueue is on the broker: compiled from its manifest, compared, and put in order.

`compile(queue, broker)` gives the topology that shall be there, `diff(observed, desired)` the steps
that lead to it. Both are pure; reading a broker and applying steps is the operator's work.
"""

from namedqueue.topology.broker import Broker, Tenancy
from namedqueue.topology.compiler import compile  # noqa: A004  # the call reads `topology.compile`
from namedqueue.topology.delay import has_ladder
from namedqueue.topology.diff import diff
from namedqueue.topology.model import NOTHING, Topology
from namedqueue.topology.names import Names
from namedqueue.topology.versions import NEWEST, OLDEST, Version

__all__ = [
    "NEWEST",
    "NOTHING",
    "OLDEST",
    "Broker",
    "Names",
    "Tenancy",
    "Topology",
    "Version",
    "compile",
    "diff",
    "has_ladder",
]
