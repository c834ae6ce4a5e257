"""Claims on both databases, held against the rules: any order of events, several claimants."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from fixtures.clock import Clock
from fixtures.scale import FULL
from fixtures.stores import AnotherPod
from namedqueue import idempotency
from namedqueue.idempotency import Claim, Record, Refused, State, Terms, Wanted
from namedqueue_sidecar.store.addresses import Address
from namedqueue_sidecar.store.claims import SWEPT_AT_ONCE, Claims, sweep
from namedqueue_sidecar.store.database import Database
from namedqueue_sidecar.store.schema import idempotency as table

T = TypeVar("T")

TERMS = Terms(lease=30_000, ttl=60_000)
KEYS = ["a", "B", "c", "schlüssel"]
PODS = 3
ENDINGS = [State.RECEIVED, State.PROCESSED, State.FAILED, State.DEAD_LETTERED]

_queues = count()


class Pods:
    """Several pods at one store, driven from a test that is no coroutine."""

    def __init__(self, address: Address) -> None:
        self._runner = asyncio.Runner()
        self.databases = [self.run(self._open(address)) for _ in range(PODS)]

    async def _open(self, address: Address) -> Database:
        database = Database(lambda: address, deadline=60)
        await database.open()
        return database

    def run(self, what: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await what

        return self._runner.run(awaited())

    def close(self) -> None:
        for database in self.databases:
            self.run(database.close())
        self._runner.close()


@contextmanager
def pods_at(address: Address) -> Iterator[Pods]:
    pods = Pods(address)
    try:
        yield pods
    finally:
        pods.close()


class Lives(RuleBasedStateMachine):
    """Pods claim, renew, end and sweep while time passes; the rules say what must come of it."""

    claims = Bundle("claims")

    def __init__(self, pods: Pods) -> None:
        super().__init__()
        self.pods, self.clock = pods, Clock()
        self.queue = f"orders-{next(_queues)}"
        self.stores = [
            Claims(database, "shop", self.queue, TERMS, now_ms=self.clock.now_ms)
            for database in pods.databases
        ]
        self.known: dict[str, Record] = {}
        self.live: dict[str, int] = {}

    @rule(
        target=claims,
        pod=st.integers(0, PODS - 1),
        keys=st.lists(st.sampled_from(KEYS), unique=True, min_size=1),
        job_id=st.sampled_from(["1", "2"]),
        redrives=st.integers(0, 1),
    )
    def claim(self, pod: int, keys: list[str], job_id: str, redrives: int) -> Any:
        wanted = [Wanted(key, job_id, redrives) for key in keys]
        got = self.pods.run(self.stores[pod].claim(wanted))
        return multiple(
            *(
                claim
                for each, answer in zip(wanted, got, strict=True)
                for claim in self._checked(each, [answer])
            )
        )

    @rule(target=claims, key=st.sampled_from(KEYS), job_id=st.sampled_from(["1", "2"]))
    def all_claim_at_once(self, key: str, job_id: str) -> Any:
        wanted = Wanted(key, job_id)

        async def together() -> list[Claim | Refused]:
            got = await asyncio.gather(*(store.claim([wanted]) for store in self.stores))
            return [answer for (answer,) in got]

        return multiple(*self._checked(wanted, self.pods.run(together())))

    def _checked(self, wanted: Wanted, got: list[Claim | Refused]) -> list[Claim]:
        """Hold what pods got for one key against the rules, and return the claim if there is one.

        Whoever comes after the one that got it is told that it is in progress.
        """
        won = [answer for answer in got if isinstance(answer, Claim)]
        expected = idempotency.claim(self.known.get(wanted.key), wanted, TERMS, self.clock.now)
        if isinstance(expected, Refused):
            assert set(got) == {expected}
            return []
        self.known[wanted.key], claim = expected
        assert won == [claim]
        assert set(got) <= {claim, Refused.IN_PROGRESS}
        assert self.live.get(wanted.key, 0) <= self.clock.now, "a live claim was taken over"
        self.live[wanted.key] = self.clock.now + TERMS.lease
        return won

    @rule(pod=st.integers(0, PODS - 1), claim=claims, state=st.sampled_from(ENDINGS))
    def end(self, pod: int, claim: Claim, state: State) -> None:
        [written] = self.pods.run(self.stores[pod].end([(claim, state)]))
        after = idempotency.end(
            self.known.get(claim.key), claim.fence, state, TERMS, self.clock.now
        )
        assert written is (after is not None)
        if after is not None:
            self.known[claim.key] = after
            self.live.pop(claim.key, None)

    @rule(pod=st.integers(0, PODS - 1), claim=claims)
    def renew(self, pod: int, claim: Claim) -> None:
        [kept] = self.pods.run(self.stores[pod].renew([claim]))
        after = idempotency.renew(self.known.get(claim.key), claim.fence, TERMS, self.clock.now)
        assert kept is (after is not None)
        if after is not None:
            self.known[claim.key] = after
            self.live[claim.key] = after.lease_until

    @rule(ms=st.sampled_from([1, 1_000, TERMS.lease - 1, TERMS.lease, TERMS.ttl]))
    def let_time_pass(self, ms: int) -> None:
        self.clock.now += ms

    @rule(pod=st.integers(0, PODS - 1))
    def sweep(self, pod: int) -> None:
        self.pods.run(sweep(self.pods.databases[pod], self.clock.now_ms))
        over = [key for key, each in self.known.items() if each.expires_at <= self.clock.now]
        for key in over:
            del self.known[key]

    @invariant()
    def the_store_holds_what_the_rules_say(self) -> None:
        assert self.pods.run(_records(self.pods.databases[0], self.queue)) == self.known


async def _records(database: Database, queue: str) -> dict[str, Record]:
    columns = [table.c[name] for name in ("key", *Record.__dataclass_fields__)]
    async with database.transaction(reading=True) as connection:
        rows = await connection.execute(select(*columns).where(table.c.queue == queue))
        return {key: Record(State(state), *rest) for key, state, *rest in rows}


def test_any_order_of_events_leaves_what_the_rules_say(shared_address: Address) -> None:
    with pods_at(shared_address) as pods:

        class LivesHere(Lives):
            def __init__(self) -> None:
                super().__init__(pods)

        run_state_machine_as_test(
            LivesHere, settings=settings(max_examples=200 if FULL else 15, stateful_step_count=25)
        )


async def test_of_many_claimants_one_gets_each_key(another_pod: AnotherPod) -> None:
    pods = [another_pod() for _ in range(4)]
    await asyncio.gather(*(pod.open() for pod in pods))
    wanted = [Wanted(f"key-{number}", "job") for number in range(200)]
    orders = [wanted, wanted[::-1], wanted[100:] + wanted[:100], wanted]

    async def claim(pod: Database, order: list[Wanted]) -> list[str]:
        claims = Claims(pod, "shop", "orders", TERMS)
        return [each.key for each in await claims.claim(order) if isinstance(each, Claim)]

    won = await asyncio.gather(*map(claim, pods, orders))
    assert sorted(key for keys in won for key in keys) == sorted(each.key for each in wanted)


async def test_overlapping_batches_of_ends_and_claims_wait_for_each_other_and_never_both(
    another_pod: AnotherPod,
) -> None:
    pods = [another_pod() for _ in range(4)]
    await asyncio.gather(*(pod.open() for pod in pods))
    keys = [f"key-{number}" for number in range(40)]

    async def work(pod: Database, turn: int) -> None:
        claims = Claims(pod, "shop", "orders", TERMS)
        for round_ in range(10):
            order = keys if (turn + round_) % 2 else keys[::-1]
            got = await claims.claim([Wanted(key, "job") for key in order])
            held = [each for each in got if isinstance(each, Claim)]
            if held:
                assert all(await claims.renew(held[::-1]))
                assert all(await claims.end([(each, State.FAILED) for each in held[::-1]]))

    await asyncio.gather(*(work(pod, turn) for turn, pod in enumerate(pods)))
    assert [pod.unavailable for pod in pods] == [None] * 4


async def test_queues_do_not_share_their_keys(store: Database) -> None:
    for namespace, queue in [("shop", "orders"), ("shop", "mails"), ("lab", "orders")]:
        [got] = await Claims(store, namespace, queue, TERMS).claim([Wanted("17", "job")])
        assert isinstance(got, Claim)


@pytest.mark.parametrize("key", ["", "'; DROP TABLE nq_idempotency; --", '"', "ä🦑", "x" * 255])
async def test_a_key_is_whatever_it_is(store: Database, key: str) -> None:
    claims = Claims(store, "shop", "orders", TERMS)
    [first] = await claims.claim([Wanted(key, "job")])
    assert isinstance(first, Claim)
    assert await claims.claim([Wanted(key, "job")]) == [Refused.IN_PROGRESS]
    assert await claims.end([(first, State.PROCESSED)]) == [True]
    assert await claims.claim([Wanted(key, "job")]) == [Refused.DUPLICATE]


async def test_pods_that_sweep_at_once_remove_what_has_expired_and_nothing_else(
    another_pod: AnotherPod,
) -> None:
    pods = [another_pod() for _ in range(3)]
    await asyncio.gather(*(pod.open() for pod in pods))
    clock = Clock()
    claims = Claims(pods[0], "shop", "orders", TERMS, now_ms=clock.now_ms)
    expired = 2 * SWEPT_AT_ONCE + 10
    for size, name in [(expired, "old"), (5, "young")]:
        got = await claims.claim([Wanted(f"{name}-{n}", "job") for n in range(size)])
        await claims.end([(each, State.PROCESSED) for each in got if isinstance(each, Claim)])
        clock.now += TERMS.ttl - 1
    clock.now -= TERMS.ttl - 2

    async def sweep_all(pod: Database) -> int:
        removed = 0
        while batch := await sweep(pod, clock.now_ms):
            removed += batch
        return removed

    assert sum(await asyncio.gather(*map(sweep_all, pods))) == expired
    left = await _records(pods[0], "orders")
    assert sorted(left) == [f"young-{n}" for n in range(5)]
