"""How jobs reach a queue by topic: one topic exchange for the vhost, one binding a subscription."""

from collections.abc import Iterable

from namedqueue.api.namedqueue import Subscription
from namedqueue.topics import binding_key
from namedqueue.topology.model import Binding, Exchange, Stage, Topology
from namedqueue.topology.names import MQTT_TOPICS, TOPICS, Names


def bound(names: Names, subscriptions: Iterable[Subscription], *, mqtt_bridge: bool) -> Topology:
    """Return the vhost's topic exchange and what leads from it to this queue.

    The exchange is there for every queue, subscribed or not, so that all queues of a vhost agree
    on what they share and a producer can publish a topic before anyone listens.
    """
    exchange = Exchange(
        name=TOPICS, type="topic", stage=Stage.TOPICS, purpose="takes messages by topic"
    )
    bindings = tuple(
        Binding(
            source=TOPICS,
            destination=names.main_exchange,
            to="exchange",
            routing_key=binding_key(subscription.topic),
            stage=Stage.TOPICS,
            purpose=f"a copy of each message on {subscription.topic}",
        )
        for subscription in subscriptions
    )
    bridge = (_BRIDGE,) if mqtt_bridge else ()
    return Topology(exchanges=(exchange,), bindings=bindings + bridge)


_BRIDGE = Binding(
    source=MQTT_TOPICS,
    destination=TOPICS,
    to="exchange",
    routing_key="#",
    stage=Stage.TOPICS,
    purpose="what MQTT clients publish",
)
