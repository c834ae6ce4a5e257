"""What the operator makes of a Secret: an account, or a sentence about what is missing."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue.topology import Tenancy
from namedqueue_operator.accounts import KEYS, Account, read, read_folder
from namedqueue_operator.troubles import BrokerTrouble

_FULL = {"host": "rabbit.shop", "username": "nq", "password": "s3cret"}


def _read(**data: str) -> Account:
    return read(data, where="Secret rabbit", tenancy=Tenancy.DEDICATED)


def test_ports_and_the_management_address_follow_from_the_host() -> None:
    account = _read(**_FULL)
    assert (account.place, account.management) == ("rabbit.shop:5672", "http://rabbit.shop:15672")
    assert not account.tls
    secured = _read(**_FULL, **{"ca.crt": "PEM"})
    assert (secured.port, secured.management) == (5671, "https://rabbit.shop:15671")
    assert secured.tls


def test_a_connection_string_says_it_all() -> None:
    account = _read(connection_string="amqps://me:p%40ss@rabbit:1234/shop")
    assert (account.username, account.password, account.vhost) == ("me", "p@ss", "shop")
    assert (account.place, account.management) == ("rabbit:1234", "https://rabbit:15671")
    assert (account.tls, account.authority) == (True, None)


def test_a_management_address_loses_the_account_in_it() -> None:
    account = _read(**_FULL, management_uri="https://me:word@console:8443/api/?a=b")
    assert account.management == "https://console:8443"


@pytest.mark.parametrize("missing", sorted(_FULL))
def test_what_is_missing_is_named(missing: str) -> None:
    with pytest.raises(BrokerTrouble, match=f"Secret rabbit lacks {missing};") as trouble:
        _read(**{key: value for key, value in _FULL.items() if key != missing})
    assert trouble.value.reason == "SecretInvalid"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("port", "0"),
        ("port", "http"),
        ("management_uri", "rabbit:15672"),
        ("management_uri", "http://[half"),
        ("connection_string", "http://rabbit"),
        ("connection_string", "amqp://rabbit:port"),
        ("tenancy", "alone"),
    ],
)
def test_what_makes_no_sense_is_named(key: str, value: str) -> None:
    with pytest.raises(BrokerTrouble, match=f"^{key} of Secret rabbit is "):
        _read(**_FULL, **{key: value})


@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=30)))
def test_any_text_is_an_account_or_a_sentence_without_the_password(data: dict[str, str]) -> None:
    password = "the-password-itself"
    result: Account | BrokerTrouble
    try:
        result = _read(**data | {"password": password})
    except BrokerTrouble as trouble:
        result = trouble
    assert password not in repr(result)
    assert isinstance(result, BrokerTrouble) or 0 < result.port < 2**16


def test_a_mounted_secret_is_read_as_one_from_the_cluster(tmp_path: Path) -> None:
    for key, value in _FULL.items():
        (tmp_path / key).write_text(f"{value}\n")
    assert read_folder(tmp_path, tenancy=Tenancy.DEDICATED) == _read(**_FULL)
    with pytest.raises(BrokerTrouble, match="is not there; mount the Secret"):
        read_folder(tmp_path / "gone", tenancy=Tenancy.DEDICATED)
