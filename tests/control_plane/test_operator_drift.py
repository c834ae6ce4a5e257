"""Whatever is changed behind the operator's back is put back, and an event tells of it."""

from urllib.parse import quote

import pytest

from control_plane.operating import Operated
from testbed.processes import TestbedError


@pytest.fixture
def ready(operated: Operated) -> Operated:
    operated.apply(subscriptions=[{"topic": "order/#"}])
    operated.ready()
    return operated


def _drop(operated: Operated, *path: str) -> None:
    operated.broker.api("DELETE", "/".join(quote(part, safe="") for part in path))


def test_a_deleted_queue_is_made_anew(ready: Operated) -> None:
    name = ready.names().main
    _drop(ready, "queues", ready.vhost, name)
    ready.told(f"recreated queue {name}")
    ready.in_place()


def test_a_deleted_exchange_and_its_bindings_are_made_anew(ready: Operated) -> None:
    name = ready.names().level(2)
    _drop(ready, "exchanges", ready.vhost, name)
    ready.told(f"recreated exchange {name}")
    ready.in_place()


def test_a_deleted_binding_is_bound_again(ready: Operated) -> None:
    names = ready.names()
    _drop(ready, "bindings", ready.vhost, "e", names.main_exchange, "q", names.main, "~")
    ready.told(f"bound {names.main_exchange} to {names.main} again")
    ready.in_place()


@pytest.mark.parametrize("policy", ["nq.{}.orders.dlq", "nq.transit"])
def test_a_changed_policy_is_set_back(ready: Operated, policy: str) -> None:
    policy = policy.format(ready.kubectl.namespace)
    path = f"policies/{quote(ready.vhost, safe='')}/{policy}"
    body = {"pattern": "^nothing$", "definition": {"max-length": 1}, "apply-to": "queues"}
    ready.broker.api("PUT", path, json=body)
    ready.told(f"set policy {policy} back")
    ready.in_place()


def test_a_deleted_user_comes_back_with_the_password_in_its_secret(ready: Operated) -> None:
    before = ready.secret("producer")
    _drop(ready, "users", ready.names().producer)
    ready.told(f"recreated user {ready.names().producer}")
    ready.in_place()
    assert ready.secret("producer") == before


def test_a_changed_password_is_set_back(ready: Operated) -> None:
    user = ready.names().consumer
    ready.broker.api("PUT", f"users/{user}", json={"password": "mine", "tags": "administrator"})
    ready.told(f"recreated user {user}")
    ready.eventually(lambda: ready.listed(f"users/{user}")["tags"] == [], "it has no tag any more")


def test_a_deleted_secret_and_a_changed_config_map_are_written_anew(ready: Operated) -> None:
    ready.kubectl("delete", "secret", "nq-orders-consumer")
    ready.kubectl("patch", "configmap", "nq-orders", '--patch={"data":{"orders.json":"{}"}}')
    ready.told("wrote Secret nq-orders-consumer")
    ready.eventually(
        lambda: len(ready.kubectl.get("configmap", "nq-orders")["data"]["orders.json"]) > 2,
        "the ConfigMap is as it was",
    )
    ready.in_place()


def test_a_whole_vhost_comes_back(ready: Operated) -> None:
    _drop(ready, "vhosts", ready.vhost)
    ready.told(f"recreated vhost {ready.vhost}")
    ready.in_place()


def test_what_only_a_person_can_settle_is_a_conflict_that_says_what_to_do(
    ready: Operated,
) -> None:
    name = ready.names().main
    vhost = quote(ready.vhost, safe="")
    classic = {"arguments": {"x-queue-type": "classic"}}

    def replaced() -> bool:
        """Tell whether the operator was not faster, so that its own queue stands there again."""
        try:
            _drop(ready, "queues", ready.vhost, name)
            ready.broker.api("PUT", f"queues/{vhost}/{name}", json=classic)
        except TestbedError:
            return False
        return True

    ready.eventually(replaced, "another queue stands there")
    ready.says("TopologyReady", "False", "Conflict")
    message = ready.condition("Ready")["message"]
    assert "x-queue-type is classic and shall be quorum" in message
    assert "delete the queue so that it is made anew" in message
    _drop(ready, "queues", ready.vhost, name)
    ready.ready()
    ready.in_place()
