"""Who may do what: one broker user per NamedQueue and role, with the least that it needs.

No user may configure anything; only the operator declares and deletes. Patterns are anchored and
cover all levels of a ladder, so a ladder can grow without touching them. Topic permissions add
nothing here: a key on a ladder exchange that is no path is returned as unroutable, and any topic
may be published by any producer of the namespace.
"""

from collections.abc import Iterator

from namedqueue.api.namedqueue import NamedQueueSpec
from namedqueue.topology.delay import has_ladder
from namedqueue.topology.model import Permission, Role, Topology, User
from namedqueue.topology.names import TOPICS, Names, quote


def users(names: Names, spec: NamedQueueSpec) -> Topology:
    """Return the consumer and the producer of a NamedQueue."""
    return Topology(
        users=(
            User(
                name=names.consumer,
                role=Role.CONSUMER,
                purpose="workers: read jobs, send them on to be delayed, dead-lettered or redriven",
            ),
            User(
                name=names.producer,
                role=Role.PRODUCER,
                purpose="producers: publish jobs, now or delayed, and topics",
            ),
        ),
        permissions=(
            Permission(
                user=names.consumer,
                write=_one_of(_consumer_writes(names, spec)),
                read=_one_of(_consumer_reads(names, spec)),
            ),
            Permission(user=names.producer, write=_one_of(_producer_writes(names, spec))),
        ),
    )


def _consumer_writes(names: Names, spec: NamedQueueSpec) -> Iterator[str]:
    if spec.type == "stream":
        yield from (quote(names.cursors), quote(names.readers))
    if spec.type == "ephemeral":
        yield quote(names.main_exchange)
    if spec.type != "durable":
        return
    yield quote(names.main_exchange)
    yield quote(names.dead_letters)
    yield quote(names.redrive)
    if has_ladder(spec):
        yield _any_level(names)


def _consumer_reads(names: Names, spec: NamedQueueSpec) -> Iterator[str]:
    fifo = spec.type == "durable" and spec.durable_or_default.fifo is not None
    yield rf"{quote(names.main)}\.[0-9]+" if fifo else quote(names.main)
    if spec.type == "durable":
        yield quote(names.dead_letters)
        yield quote(names.redrive)
    if spec.type == "stream":
        yield quote(names.cursors)
        yield rf"{quote(names.readers)}\.[a-z0-9-]+"


def _producer_writes(names: Names, spec: NamedQueueSpec) -> Iterator[str]:
    yield quote(names.main_exchange)
    if has_ladder(spec):
        yield _any_level(names)
    yield quote(TOPICS)


def _any_level(names: Names) -> str:
    return rf"{quote(names.delay)}\.[0-9]+"


def _one_of(patterns: Iterator[str]) -> str:
    """Join patterns into one that matches whole names; none at all is the empty one: nothing."""
    found = tuple(patterns)
    return f"^({'|'.join(found)})$" if found else ""
