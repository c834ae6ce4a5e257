"""Topics: levels separated by `/`, and patterns where `+` is one level and a final `#` the rest."""


def matches(pattern: str, topic: str) -> bool:
    """Tell whether a topic falls under a pattern; `a/#` covers `a` itself, as in MQTT and AMQP."""
    wanted, levels = pattern.split("/"), topic.split("/")
    if wanted[-1] == "#":
        wanted.pop()
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        want in ("+", level) for want, level in zip(wanted, levels, strict=True)
    )


def binding_key(pattern: str) -> str:
    """Write a pattern as an AMQP binding key."""
    return pattern.replace("/", ".").replace("+", "*")


def routing_key(topic: str) -> str:
    """Write a topic as an AMQP routing key."""
    return topic.replace("/", ".")
