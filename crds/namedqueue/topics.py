"""Topics: levels separated by `/`, and patterns where `+` is one level and a final `#` the rest."""

import re
from typing import Final

LEVEL: Final = r"[A-Za-z0-9_:@$~-]+"
LONGEST_TOPIC: Final = 200

_TOPIC = re.compile(rf"{LEVEL}(/{LEVEL})*")


def matches(pattern: str, topic: str) -> bool:
    """Tell whether a topic falls under a pattern; `a/#` covers `a` itself, as in MQTT and AMQP."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        want in ("+", level) for want, level in zip(wanted, levels, strict=True)
    )


def selects(pattern: str | None, topic: str | None) -> bool:
    """Tell whether a filter lets a message through; without a topic only no filter and `#` do."""
    if pattern is None or pattern == "#":
        return True
    return topic is not None and matches(pattern, topic)


def binding_key(pattern: str) -> str:
    """Write a pattern as an AMQP binding key."""
    return pattern.replace("/", ".").replace("+", "*")


def routing_key(topic: str) -> str:
    """Write a topic as an AMQP routing key."""
    return topic.replace("/", ".")


def is_topic(text: str) -> bool:
    """Tell whether a message can be published to this: a pattern without wildcards."""
    return _TOPIC.fullmatch(text) is not None and len(text) <= LONGEST_TOPIC
