"""What the operator writes is what a sidecar reads: from a Secret of yours to a pod's files."""

from pathlib import Path

import pytest

from fixtures.mounts import mount, stored
from namedqueue.topology import Tenancy
from namedqueue.topology.model import Role
from namedqueue_operator import accounts, children
from namedqueue_operator.sidecars import Wish, volume
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials

_LOGIN = ("nq.shop.orders.consumer", "its-own")
_KEYS = {"host": "rabbit", "username": "admin", "password": "s3cret"}


def _mounted(root: Path, **keys: str) -> Credentials:
    account = accounts.read(keys, where="Secret rabbit", tenancy=Tenancy.DEDICATED)
    body = stored()
    secret = children.secret(body, Role.CONSUMER, account, "nq-shop", _LOGIN)
    mount(volume(Wish(("orders",), ())), [children.config_map(body), secret], root)
    return Credentials.from_folder(root / "consume/orders")


@pytest.mark.parametrize(
    ("keys", "port", "tls", "authority"),
    [
        (_KEYS, 5672, False, False),
        ({"connection_string": "amqp://admin:s3cret@rabbit"}, 5672, False, False),
        ({"connection_string": "amqps://admin:s3cret@rabbit"}, 5671, True, False),
        ({"connection_string": "amqps://admin:s3cret@rabbit:5672"}, 5672, True, False),
        ({**_KEYS, "ca.crt": "PEM"}, 5671, True, True),
    ],
)
def test_a_sidecar_speaks_tls_where_the_broker_does(
    tmp_path: Path, keys: dict[str, str], port: int, *, tls: bool, authority: bool
) -> None:
    found = _mounted(tmp_path, **keys)
    assert (found.host, found.port, found.tls) == ("rabbit", port, tls)
    assert (found.username, found.password) == _LOGIN
    assert (found.authority is not None) == authority
