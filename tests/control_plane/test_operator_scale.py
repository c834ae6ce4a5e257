"""Hundreds of NamedQueues on one operator: what it costs them, the API server and the broker.

The queues are spread over namespaces of twenty: what a policy costs a broker grows with the square
of the queues in a vhost (`docs/capacity.md`).
"""

import random
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from control_plane.crowds import Crowd, Key, is_ready, namespaces, operator_for
from fixtures.api_server import ApiServer
from fixtures.brokers import VERSIONS
from fixtures.kubernetes import ControlPlane
from fixtures.scale import FULL
from testbed import rabbitmq
from testbed.rabbitmq import Broker

_EACH = 20
_QUEUES = 500 if FULL else 20
_EDITS = 100 if FULL else 20
_TRIES = 1 if FULL else 3
_HOUR = 720
"""Polls of an hour at the default pace."""
_ROUNDS = _HOUR if FULL else 60
_POLL, _DRIFT = (1.0, 5.0) if FULL else (0.5, 2.5)
_READS_OF_A_LOOK = 8
"""Exchanges, vhosts, queues, bindings, policies, users, permissions, and the version."""


@pytest.fixture(scope="module")
def lonely_broker() -> Iterator[Broker]:
    """Give a broker that only these queues live on."""
    name = f"pytest-private-rabbitmq-{uuid.uuid4().hex[:12]}"
    yield rabbitmq.start(VERSIONS[-1], name, {"management.http_log_dir": "/mnt/http"})
    rabbitmq.remove(name)


@pytest.fixture(scope="module")
def crowd(
    control_plane: ControlPlane,
    api_server: ApiServer,
    lonely_broker: Broker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Crowd]:
    """Give an operator with all the queues ready."""
    if control_plane.audit_log is None:
        pytest.skip("an existing cluster's audit log is not ours to read; unset KUBECONFIG")
    prefix = f"crowd{uuid.uuid4().hex[:6]}-"
    state: Path = tmp_path_factory.mktemp("crowd")
    with (
        namespaces(api_server.http, prefix, -(-_QUEUES // _EACH)),
        operator_for(
            api_server.http, prefix, lonely_broker, state, control_plane, (_POLL, _DRIFT)
        ) as crowd,
    ):
        began = time.monotonic()
        for key in crowd.keys(_QUEUES, each=_EACH):
            crowd.apply(key)
        crowd.all_ready(_QUEUES, deadline=1800)
        print(f"{_QUEUES} queues were ready after {time.monotonic() - began:.0f} s")  # noqa: T201  # a figure
        yield crowd


def _rounds(crowd: Crowd, count: int) -> None:
    """Wait until the operator has gone round so many times."""
    until = _reads(crowd) + count
    crowd.eventually(lambda: _reads(crowd) >= until, f"{count} rounds", deadline=1800)


def _reads(crowd: Crowd) -> float:
    return crowd.metric("namedqueue_management_requests_total", method="GET")


def _answered(crowd: Crowd) -> Counter[str]:
    """Count by method what the broker's own log says that the operator has asked it."""
    lines = (crowd.broker.state / "http" / "access.log").read_text().splitlines()
    return Counter(line.split('"')[1].split()[0] for line in lines if "httpx" not in line)


def test_in_a_steady_state_a_poll_is_one_read_and_nothing_is_written(crowd: Crowd) -> None:
    _rounds(crowd, 20)  # whatever the last queue's creation has left to do is done
    before, since, began = _answered(crowd), datetime.now(UTC), time.monotonic()
    _rounds(crowd, 40)
    took = time.monotonic() - began
    made = _answered(crowd) - before
    most = took / _POLL + (took / _DRIFT + 1) * _READS_OF_A_LOOK + 1
    assert 0 < made["GET"] <= most
    assert made.keys() == {"GET"}
    assert crowd.writes(since.isoformat().replace("+00:00", "Z")) == []
    print(  # noqa: T201  # a figure
        f"{_QUEUES} queues, {took:.0f} s at a poll of {_POLL:g} s and a look every {_DRIFT:g} s: "
        f"{made['GET']} reads of the management API, 0 writes to it or the API server"
    )


def test_a_change_to_one_queue_is_ready_within_seconds_while_the_rest_exist(crowd: Crowd) -> None:
    dice = random.Random(20261118)  # noqa: S311  # repeatable, not secret
    # An operator that is slow is slow each time; a busy machine is not.
    assert any(_slowest(crowd, dice) < 5 for _ in range(_TRIES))


def _slowest(crowd: Crowd, dice: random.Random) -> float:
    """Edit some queues; return how long all but the slowest hundredth of the edits took at most."""
    keys = crowd.keys(_QUEUES, each=_EACH)
    took = sorted(
        _edited(crowd, dice.choice(keys), attempts=number % 90 + 6) for number in range(_EDITS)
    )
    slowest = took[int(len(took) * 0.99) - 1]
    print(  # noqa: T201  # a figure
        f"{_EDITS} edits among {_QUEUES} queues: median {took[len(took) // 2]:.2f} s, "
        f"p99 {slowest:.2f} s"
    )
    return slowest


def _edited(crowd: Crowd, key: Key, *, attempts: int) -> float:
    began = time.monotonic()
    crowd.apply(key, retry={"maxAttempts": attempts}, deadLetter={"retention": f"{attempts}d"})
    crowd.eventually(_is_current(crowd, key), f"{key} is ready", deadline=60)
    return time.monotonic() - began


def _is_current(crowd: Crowd, key: Key) -> Callable[[], bool]:
    return lambda: is_ready(crowd.queue(key))


def test_memory_stays_flat_over_an_hour_of_rounds(
    crowd: Crowd, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The hour is compressed: another operator takes over and goes round ten times as fast."""
    with operator_for(
        crowd.http, crowd.prefix, crowd.broker, tmp_path, control_plane, (0.2, 1)
    ) as quick:
        _rounds(quick, _ROUNDS // 4)
        settled = quick.memory_mib()
        _rounds(quick, _ROUNDS)
        grown = quick.memory_mib() - settled
    print(f"{_QUEUES} queues, {_ROUNDS} reads: {settled:.0f} MiB, then {grown:+.1f} MiB")  # noqa: T201  # a figure
    assert grown < 0.05 * settled + 2
