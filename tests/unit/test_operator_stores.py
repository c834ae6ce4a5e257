"""What the operator makes of a store's Secret, and what it tells the queues that need one."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.mounts import mount, stored
from namedqueue.topology import Tenancy
from namedqueue.topology.model import Role
from namedqueue_operator import accounts, children, stores
from namedqueue_operator.conditions import STORE_BOUND, TOPOLOGY_READY, summary, yes
from namedqueue_operator.sidecars import Wish, volume
from namedqueue_operator.stores import Provision, Store
from namedqueue_operator.troubles import StoreTrouble
from namedqueue_sidecar.bindings import Bindings
from namedqueue_sidecar.store import addresses

_PARTS = {"host": "db", "username": "nq", "password": "s3cret", "database": "store"}
_URI = "postgresql://nq:s3cret@db:6432/store?sslmode=verify-full"
_STORE = stores.read(_PARTS, where="Secret db")
_TROUBLE = StoreTrouble("SecretMissing", "Secret db is not there")
_IDEMPOTENT: dict[str, Any] = {"idempotency": {"key": "messageId"}}
_BROKER = accounts.read(
    {"host": "rabbit", "username": "u", "password": "p"}, where="", tenancy=Tenancy.DEDICATED
)


def _bindings(root: Path, store: Store | None) -> Bindings:
    """Mount what a pod gets that works orders off and sends payments."""
    orders, payments = stored("orders"), stored("payments")
    objects = [children.config_map(each) for each in (orders, payments)]
    for body, role in ((orders, Role.CONSUMER), (payments, Role.PRODUCER)):
        objects.append(children.secret(body, role, _BROKER, "nq-shop", ("u", "p")))
    if store is not None:
        objects += [children.store_secret(each, store.keys) for each in (orders, payments)]
    mount(volume(Wish(("orders",), ("payments",))), objects, root)
    return Bindings.find(root, "shop")


@pytest.mark.parametrize(
    ("keys", "place", "sslmode"),
    [
        (_PARTS, "db:5432/store", "prefer"),
        ({**_PARTS, "port": "6432\n"}, "db:6432/store", "prefer"),
        ({"uri": _URI}, "db:6432/store", "verify-full"),
        ({**_PARTS, "connection_string": _URI}, "db:6432/store", "verify-full"),
    ],
)
def test_a_consumer_finds_the_store_where_the_operator_puts_it_and_a_producer_does_not(
    tmp_path: Path, keys: dict[str, str], place: str, sslmode: str
) -> None:
    store = stores.read({**keys, "ca.crt": "PEM"}, where="Secret db")
    assert store.place == place
    bindings = _bindings(tmp_path, store)
    assert bindings.store == tmp_path / "consume/orders/store"
    assert not (tmp_path / "produce/payments/store").exists()
    found = addresses.from_folder(bindings.store)
    assert isinstance(found, addresses.Postgres)
    assert (found.place, found.sslmode) == (place, sslmode)
    assert (found.username, found.password) == ("nq", "s3cret")
    assert found.authority == bindings.store / "ca.crt"


def test_without_a_store_the_same_volume_has_none(tmp_path: Path) -> None:
    assert _bindings(tmp_path, None).store is None


@given(
    st.dictionaries(st.sampled_from([*_PARTS, "port", "uri"]), st.text(max_size=12) | st.just(_URI))
)
def test_what_the_operator_takes_a_sidecar_takes(keys: dict[str, str]) -> None:
    try:
        store = stores.read(keys, where="Secret db")
    except StoreTrouble:
        return
    with TemporaryDirectory() as folder:
        for key, value in store.keys.items():
            (Path(folder) / key).write_text(value)
        addresses.from_folder(Path(folder))


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, "Secret db lacks host, username, password, database; write"),
        ({**_PARTS, "database": " "}, "Secret db lacks database; write"),
        ({**_PARTS, "port": "s3cret"}, "port of Secret db is not a number from 1 to 65535"),
        ({"uri": "mysql://nq:s3cret@db/x"}, "uri of Secret db is not postgresql:// with a host"),
        ({"uri": "postgresql://nq:s3cret@db"}, "uri of Secret db is not postgresql:// with a host"),
        ({"uri": "sqlite:///s3cret"}, "uri of Secret db is not postgresql:// with a host"),
        ({"connection_string": "postgresql://nq:s3cret@db:x/y"}, "is not an address"),
    ],
)
def test_what_is_wrong_with_a_secret_is_said_without_what_is_in_it(
    keys: dict[str, str], says: str
) -> None:
    with pytest.raises(StoreTrouble) as trouble:
        stores.read(keys, where="Secret db")
    assert says in str(trouble.value)
    assert "s3cret" not in str(trouble.value)
    assert trouble.value.reason == "SecretInvalid"


def test_a_store_shows_no_account() -> None:
    assert "s3cret" not in repr(stores.read({"uri": _URI}, where="Secret db"))


@pytest.mark.parametrize(
    ("spec", "provision", "ready", "says"),
    [
        (_IDEMPOTENT, None, "False", "spec.idempotency needs a store; start the operator with"),
        (_IDEMPOTENT, _TROUBLE, "False", "spec.idempotency needs the store: Secret db is not"),
        (_IDEMPOTENT, _STORE, "True", "sidecars are sent to the store at db:5432/store"),
        ({}, _STORE, "True", "sidecars are sent to the store at db:5432/store"),
        ({}, _TROUBLE, "True", "dead letters get no records: Secret db is not there"),
    ],
)
def test_a_queue_is_ready_without_a_store_unless_it_needs_one(
    spec: dict[str, Any], provision: Provision, ready: str, says: str
) -> None:
    answers = stores.answers(stored(**spec), provision)
    assert says in answers[STORE_BOUND].message
    assert summary({TOPOLOGY_READY: yes("InPlace"), **answers}).status == ready


def test_only_an_operator_without_a_store_takes_it_away() -> None:
    assert stores.given(stored(), _STORE, had_one=False) == _STORE.keys
    assert stores.given(stored(type="stream"), _STORE, had_one=False) is None
    assert stores.given(stored(), _TROUBLE, had_one=True) is None
    assert stores.given(stored(), None, had_one=True) == {}
    assert stores.given(stored(), None, had_one=False) is None


def test_who_never_asked_for_a_store_is_told_nothing_of_it() -> None:
    assert stores.answers(stored(), None) == {}
    assert stores.answers(stored(type="stream"), _STORE) == {}


def test_a_queue_that_needs_the_store_no_longer_stops_missing_it() -> None:
    missed = {"conditions": [{"type": STORE_BOUND, "status": "False"}]}
    answers = stores.answers({**stored(), "status": missed}, None)
    assert (answers[STORE_BOUND].status, answers[STORE_BOUND].reason) == ("True", "NotNeeded")
