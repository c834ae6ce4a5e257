"""NamedQueues for tests: one written out by hand, or as Hypothesis draws them."""

from typing import Any

from hypothesis import strategies as st

from namedqueue.api.namedqueue import NamedQueue
from namedqueue.topology import Broker, Tenancy, Version
from unit.policies import policies

_LEVELS = st.sampled_from(["order", "eu", "created", "+", "v1", "user-7"])
_SECONDS = st.integers(1, 10**6).map(lambda seconds: f"{seconds}s")


def named_queue(**spec: Any) -> NamedQueue:
    """Return the queue shop/orders of a spec as a manifest would write it."""
    return NamedQueue.model_validate(
        {
            "apiVersion": "namedqueue.io/v1alpha1",
            "kind": "NamedQueue",
            "metadata": {"name": "orders", "namespace": "shop"},
            "spec": spec,
        }
    )


def _optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


_quorum = st.fixed_dictionaries(
    {
        "storage": st.just("quorum"),
        "maxLength": _optional(st.integers(1, 10**9)),
        "messageTTL": _optional(_SECONDS),
        "fifo": _optional(
            st.fixed_dictionaries(
                {"groupBy": st.just("body.customer"), "partitions": st.integers(1, 12)}
            )
        ),
    }
)
_classic = st.fixed_dictionaries(
    {
        "storage": st.just("classic"),
        "mode": st.sampled_from(["default", "lazy"]),
        "maxLength": _optional(st.integers(1, 10**9)),
        "messageTTL": _optional(_SECONDS),
        "maxPriority": st.sampled_from([0, 5, 255]),
    }
)
_stream = st.fixed_dictionaries(
    {
        "maxAge": _optional(_SECONDS),
        "maxBytes": _optional(st.sampled_from(["1", "10Mi", "10Gi", "4Ei"])),
        "maxMessages": _optional(st.integers(1, 10**12)),
        "consumers": st.lists(
            st.sampled_from(["audit", "billing", "a-1"]).map(lambda group: {"group": group}),
            max_size=2,
            unique_by=lambda consumer: consumer["group"],
        ),
    }
)
_ephemeral = st.fixed_dictionaries({"idleExpiry": st.sampled_from(["1s", "5m", "24h"])})
_blocks = st.one_of(
    st.tuples(st.just("durable"), _quorum | _classic),
    st.tuples(st.just("stream"), _stream),
    st.tuples(st.just("ephemeral"), _ephemeral),
)
_topics = st.lists(
    st.lists(_LEVELS, min_size=1, max_size=3).map(lambda levels: {"topic": "/".join(levels)}),
    max_size=3,
    unique_by=lambda subscription: subscription["topic"],
)


@st.composite
def named_queues(draw: st.DrawFn, *, like: NamedQueue | None = None) -> NamedQueue:
    """Draw any queue, or one that the API would accept as an update of `like`."""
    kind, block = draw(_blocks)
    queue = _queue(draw, kind, block)
    if like is None:
        return queue
    kept = like.spec.durable_or_default
    if like.spec.type == kind == "durable":
        fifo = kept.fifo and {"groupBy": kept.fifo.group_by, "partitions": kept.fifo.partitions}
        fixed = {"storage": kept.storage, "maxPriority": kept.max_priority, "fifo": fifo}
        block = {key: block[key] for key in ("maxLength", "messageTTL")} | fixed
        return _queue(draw, kind, block)
    return queue if like.spec.type == kind else like


def _queue(draw: st.DrawFn, kind: str, block: dict[str, Any]) -> NamedQueue:
    worker = {"port": 8080, "timeout": draw(st.sampled_from(["30s", "20m", "24h"]))}
    return named_queue(
        type=kind,
        subscriptions=draw(_topics),
        retry=draw(policies()),
        deadLetter={"retention": draw(st.sampled_from(["1m", "90d", "3650d"]))},
        worker=worker if block.get("consumers") else draw(_optional(st.just(worker))),
        **{kind: block},
    )


versions = st.sampled_from(["3.10", "3.11", "3.12", "3.13", "4.0", "4.1", "4.2", "4.3"]).map(
    Version.parse
)
brokers = st.builds(
    Broker,
    version=versions,
    tenancy=st.sampled_from(Tenancy),
    vhost=st.just("team"),
    mqtt_bridge=st.booleans(),
)
