"""What can stand in a queue's way, as errors that become conditions.

Each has a reason, one word for programs, and a sentence for people that says what to do. No
sentence holds a credential: it ends up in conditions, events and logs.
"""


class Trouble(Exception):  # noqa: N818  # «raise … Trouble» says it
    """Something that only a person, or time, can mend."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class BrokerTrouble(Trouble):
    """The broker cannot be asked: it is away, refuses us, or we do not know where it is."""


class TopologyTrouble(Trouble):
    """The broker answers, but what the queue needs cannot be put there."""


class StoreTrouble(Trouble):
    """Sidecars cannot be sent to a store: its Secret is missing, refused to us, or wrong."""
