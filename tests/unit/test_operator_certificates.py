"""The webhook's certificates: at every moment, what is served is trusted and has not ended."""

import ssl
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from namedqueue_operator.certificates import Keyring, decide, issue, keyring_in, settling

_NAMES = ["webhook.namedqueue.svc", "127.0.0.1"]
_START = 1_800_000_000.0
_LIFETIME = 900.0


def _decide(keyring: Keyring | None, now: float, *, announced: bool = True) -> Keyring:
    return decide(keyring, _NAMES, announced=announced, now=now, lifetime=_LIFETIME)


def _served_is_trusted(keyring: Keyring) -> bool:
    return keyring.serving.authority in keyring.bundle


def test_the_first_pair_is_for_the_hosts_it_is_called_by_and_stays_while_it_is_young() -> None:
    keyring = _decide(None, _START)
    assert keyring.serving.names == set(_NAMES)
    assert keyring.serving.expires == _START + _LIFETIME
    assert _decide(keyring, _START + _LIFETIME / 2) is keyring
    assert keyring_in(keyring.data()) == keyring


def test_a_worn_pair_is_replaced_in_steps_that_overlap() -> None:
    first = _decide(None, _START)
    late = _START + _LIFETIME * 0.7
    staged = _decide(first, late)
    assert staged.serving == first.serving
    assert staged.staged is not None
    assert staged.bundle.count("BEGIN") == 2
    assert _decide(staged, late + settling(_LIFETIME) / 2) is staged
    unheard = _decide(staged, late + settling(_LIFETIME), announced=False)
    assert unheard is staged, "it waits until the API server was told"
    promoted = _decide(staged, late + settling(_LIFETIME))
    assert promoted.serving == staged.staged
    assert promoted.bundle == staged.bundle, "a replica that looks later still serves the first"
    again = _decide(promoted, late + _LIFETIME)
    assert first.serving.authority not in again.bundle


def test_another_name_makes_another_certificate_at_once() -> None:
    first = _decide(None, _START)
    renamed = decide(first, ["other.svc"], announced=True, now=_START + 1, lifetime=_LIFETIME)
    assert renamed.staged is not None
    assert renamed.staged.names == {"other.svc"}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1, 2 * _LIFETIME), min_size=1, max_size=12), st.data())
def test_whenever_anybody_looks_what_is_served_is_trusted_and_good(
    pauses: list[float], data: st.DataObject
) -> None:
    now, keyring, history = _START, _decide(None, _START), []
    for pause in pauses:
        now += pause
        keyring = _decide(keyring, now, announced=data.draw(st.booleans()))
        assert _served_is_trusted(keyring)
        assert keyring.serving.expires > now
        assert keyring_in(keyring.data()) == keyring
        history.append(keyring)
    for older, newer in pairwise(history):
        if older.serving != newer.serving and newer.serving == older.staged:
            assert older.serving.authority in newer.bundle


@pytest.mark.parametrize("broken", ["tls.key", "tls.crt", "ca.crt"])
def test_a_secret_that_nobody_could_use_is_as_good_as_none(broken: str) -> None:
    data = _decide(None, _START).data()
    other = _decide(None, _START).data()
    assert keyring_in({**data, broken: other[broken]}) is None
    assert keyring_in({**data, broken: "bm90aGluZw=="}) is None
    assert keyring_in({}) is None


def test_no_key_shows_up_where_it_could_be_logged() -> None:
    keyring = _decide(None, _START)
    assert "PRIVATE" not in repr(keyring)


def test_openssl_takes_the_authority_and_the_lifetime_may_be_short() -> None:
    pair = issue(["127.0.0.1"], _START, 24)
    context = ssl.create_default_context(cadata=pair.authority)
    assert context.cert_store_stats()["x509_ca"] == 1
