"""A topology as a picture: Graphviz DOT, jobs flowing from left to right.

Exchanges are ellipses, queues are boxes, bindings are solid arrows with their routing key, and what
the broker sends on by itself is dashed.
"""

from collections.abc import Iterator

from namedqueue.topology.model import Binding, Exchange, Queue, Stage, Topology

_COLOURS = {
    Stage.TOPICS: "#ede7f6",
    Stage.MAIN: "#e3f2fd",
    Stage.DELAY: "#fff8e1",
    Stage.DEAD_LETTER: "#ffebee",
    Stage.GROUPS: "#e0f2f1",
    Stage.REDRIVE: "#e8f5e9",
}
_OTHER = "#eeeeee"


def to_dot(topology: Topology) -> str:
    """Return the topology as a Graphviz graph; the same topology gives the same text."""
    return "\n".join(_lines(topology)) + "\n"


def _lines(topology: Topology) -> Iterator[str]:
    yield "digraph topology {"
    yield "  rankdir=LR;"
    yield '  node [fontname="sans-serif", fontsize=10, style=filled];'
    yield '  edge [fontname="sans-serif", fontsize=8];'
    if topology.vhost is not None:
        yield f"  label={_quoted(f'vhost {topology.vhost.name}')};"
    for stage in (*Stage, None):
        yield from _cluster(topology, stage)
    yield from (_binding_edge(binding) for binding in topology.bindings)
    yield from (_dead_letter_edge(queue) for queue in topology.queues if queue.dead_letter_exchange)
    yield "}"


def _cluster(topology: Topology, stage: Stage | None) -> Iterator[str]:
    nodes = [
        *(_exchange_node(it) for it in topology.exchanges if it.stage is stage),
        *(_queue_node(it) for it in topology.queues if it.stage is stage),
    ]
    if nodes and stage is not None:
        yield f"  subgraph {_quoted(f'cluster {stage}')} {{"
        yield f"    label={_quoted(stage)};"
        yield from (f"    {node}" for node in nodes)
        yield "  }"
    else:
        yield from (f"  {node}" for node in nodes)


def _exchange_node(exchange: Exchange) -> str:
    return _node(
        f"exchange {exchange.name}", f"{exchange.name}\n{exchange.type}", "ellipse", exchange.stage
    )


def _queue_node(queue: Queue) -> str:
    kind = queue.arguments.get("x-queue-type", "classic")
    return _node(f"queue {queue.name}", f"{queue.name}\n{kind}", "box", queue.stage)


def _node(identity: str, label: str, shape: str, stage: Stage | None) -> str:
    colour = _COLOURS[stage] if stage else _OTHER
    attributes = f'label={_quoted(label)}, shape={shape}, fillcolor="{colour}"'
    return f"{_quoted(identity)} [{attributes}];"


def _binding_edge(binding: Binding) -> str:
    source = _quoted(f"exchange {binding.source}")
    destination = _quoted(f"{binding.to} {binding.destination}")
    return f"  {source} -> {destination} [label={_quoted(binding.routing_key)}];"


def _dead_letter_edge(queue: Queue) -> str:
    ttl = queue.arguments.get("x-message-ttl")
    label = "dead letters" if ttl is None else f"after {ttl} ms"
    target = _quoted(f"exchange {queue.dead_letter_exchange}")
    source = _quoted(f"queue {queue.name}")
    return f"  {source} -> {target} [style=dashed, label={_quoted(label)}];"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
