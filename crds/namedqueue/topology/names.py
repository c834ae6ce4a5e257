"""What everything on the broker is called.

All that belongs to one NamedQueue begins with `nq.<namespace>.<name>`. Namespaces and names are DNS
labels and hold no dots, so a dot always ends a part and no two queues can share an object.
"""

import re
from dataclasses import dataclass
from typing import Final

TOPICS: Final = "nq.topics"
MQTT_TOPICS: Final = "amq.topic"
TRANSIT: Final = "nq.transit"
GROUP_HEADER: Final = "nq-group"

_BOOKS = re.compile(r"nq\.[^.]+\.[^.]+\.(cursors|readers\.[^.]+)")
_REGEX_CHARACTERS = re.compile(r"([.^$*+?()\[\]{}|\\])")


@dataclass(frozen=True)
class Names:
    """The names of one NamedQueue's objects."""

    namespace: str
    name: str

    @property
    def prefix(self) -> str:
        return f"nq.{self.namespace}.{self.name}"

    @property
    def vhost(self) -> str:
        return f"nq-{self.namespace}"

    @property
    def main_exchange(self) -> str:
        return self.prefix

    @property
    def main(self) -> str:
        return f"{self.prefix}.main"

    @property
    def delay(self) -> str:
        return f"{self.prefix}.delay"

    @property
    def dead_letters(self) -> str:
        """Name the exchange, the queue and the policy of the dead-letter stage."""
        return f"{self.prefix}.dlq"

    @property
    def redrive(self) -> str:
        """Name the exchange and the queue of the redrive stage."""
        return f"{self.prefix}.redrive"

    @property
    def cursors(self) -> str:
        """Name the exchange, the queue and the policy of a stream's cursors."""
        return f"{self.prefix}.cursors"

    @property
    def readers(self) -> str:
        """Name the exchange and the policy of the tokens of a stream's readers."""
        return f"{self.prefix}.readers"

    @property
    def consumer(self) -> str:
        return f"{self.prefix}.consumer"

    @property
    def producer(self) -> str:
        return f"{self.prefix}.producer"

    def partition(self, number: int) -> str:
        """Name a FIFO queue's partition."""
        return f"{self.main}.{number}"

    def reader(self, group: str) -> str:
        """Name the queue in which the token of a group's reader lies."""
        return f"{self.readers}.{group}"

    def level(self, number: int) -> str:
        """Name the exchange and the queue of one level of the delay ladder."""
        return f"{self.delay}.{number}"

    def below(self, level: int) -> str:
        """Name the exchange that a job reaches after a level: the next one, at last main."""
        return self.level(level - 1) if level else self.main_exchange

    def own(self, name: str) -> bool:
        """Tell whether an object found on a broker belongs to this NamedQueue."""
        return name == self.prefix or name.startswith(f"{self.prefix}.")


def is_shared(name: str) -> bool:
    """Tell whether an object serves the whole vhost and so outlives any one NamedQueue."""
    return name in {TOPICS, MQTT_TOPICS, TRANSIT}


def holds_jobs(queue: str) -> bool:
    """Tell whether a queue of ours is there for jobs, rather than to keep books about them."""
    return not _BOOKS.fullmatch(queue)


def exactly(*names: str) -> str:
    """Return a regular expression that matches these names and nothing else."""
    quoted = "|".join(quote(name) for name in names)
    return f"^{quoted}$" if len(names) == 1 else f"^({quoted})$"


def quote(name: str) -> str:
    """Make a name safe inside a regular expression, and leave it readable."""
    return _REGEX_CHARACTERS.sub(r"\\\1", name)


def in_order(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key under which level 10 comes after level 9."""
    return tuple((0, int(part)) if part.isdigit() else (1, part) for part in name.split("."))
