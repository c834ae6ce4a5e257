"""What the compiler has to know about a broker before it can say what to put there."""

from dataclasses import dataclass
from enum import StrEnum

from namedqueue.topology.versions import NEWEST, Version


class Tenancy(StrEnum):
    """Whether the operator may make vhosts and users, or has to live in what it was given."""

    DEDICATED = "dedicated"
    SHARED = "shared"


@dataclass(frozen=True, kw_only=True)
class Broker:
    """A broker as the compiler sees it. `vhost` is the one given under shared tenancy."""

    version: Version = NEWEST
    tenancy: Tenancy = Tenancy.DEDICATED
    vhost: str = "/"
    mqtt_bridge: bool = False
