"""A million dead letters: a page takes less than a second with a store, little memory without."""

import gc
import re
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from broker.port.play import NAMESPACE, Hands, bury_at_once, declare, enqueue, eventually, job
from fixtures.adapters import rabbitmq_client
from fixtures.scale import FULL
from namedqueue.triage import Review
from namedqueue_sidecar.store.addresses import from_url
from namedqueue_sidecar.store.database import Database
from namedqueue_sidecar.store.letters import Letters
from namedqueue_sidecar.store.port import Search
from testbed import rabbitmq

LETTERS = 1_000_000 if FULL else 3_000
RECORDS = 1_000_000 if FULL else 20_000
PUBLISHED_AT_ONCE = 10_000
MEBIBYTE = 1 << 20
TRIES = 1 if FULL else 3
"""A slow search is slow each time; a busy machine is not."""

FILL = """
INSERT INTO nq_dead_letters (
    namespace, queue, letter, job_id, state, reason, message, cause,
    dead_lettered_at, expires_at, properties, headers, payload
)
SELECT
    :namespace, CASE WHEN n % 10 = 0 THEN 'other' ELSE 'orders' END,
    '0.' || md5(n::text) || '.job-' || n, 'job-' || n,
    CASE WHEN n <= :count * 0.4 THEN 'replayed' ELSE 'pending' END,
    CASE WHEN n <= :count * 0.4 THEN 'TIMEOUT' ELSE 'HTTP_' || 500 + n % 4 END,
    'the app said no to order ' || n, 'cause-' || n % 4,
    1800000000000 + n, 1900000000000 + n,
    '{"message_id": "job-' || n || '"}', '{}',
    convert_to('{"order": ' || n || ', "text": "' || repeat('x', 400) || '"}', 'UTF8')
FROM generate_series(1, :count) n
"""
"""Records of which the older part was sent back, between those of another queue."""


@pytest.mark.timeout(1800)
async def test_a_page_of_very_many_records_takes_less_than_a_second(database: str) -> None:
    filling = Database(lambda: from_url(database), deadline=600)
    await filling.open()
    async with filling.transaction() as connection:
        await connection.execute(text(FILL), {"namespace": NAMESPACE, "count": RECORDS})
    async with filling.transaction() as connection:
        await connection.execute(text("ANALYZE nq_dead_letters"))
    await filling.close()
    store = Database(lambda: from_url(database))
    await store.open()
    kept, took = Letters(store, NAMESPACE, "orders"), dict[str, float]()
    searches = {
        "open": (Search(), 100),
        "by reason": (Search(reason="HTTP_502"), 100),
        "by group": (Search(cause="cause-3"), 100),
        "sent back": (Search(frozenset({Review.REPLAYED})), 100),
        "reviewed": (Search(frozenset({Review.REVIEWED})), 0),
        "by the reason of those sent back": (Search(reason="TIMEOUT"), 0),
    }
    for name, (search, expected) in searches.items():
        tries = list[float]()
        while len(tries) < TRIES and min(tries, default=1.0) >= 1:
            began = time.perf_counter()
            page = await kept.page(search, 0, 100)
            tries.append(time.perf_counter() - began)
            assert len(page.records) == expected, name
        took[name] = min(tries)
    began = time.perf_counter()
    groups = await kept.groups(Search())
    grouped = time.perf_counter() - began
    assert sum(group.letters for group in groups) == await kept.count_open() == RECORDS * 54 // 100
    needle = Search(contains=b'"order": %d,' % (RECORDS - 1))
    began, pages, after = time.perf_counter(), 0, 0
    while not (page := await kept.page(needle, after, 1)).records:
        assert page.following is not None
        pages, after = pages + 1, page.following
    searched = time.perf_counter() - began
    await store.close()
    print(  # noqa: T201 - figures
        f"{RECORDS} records: first page at most {max(took.values()):.3f} s, groups {grouped:.2f} s,"
        f" a piece of the last payload found in {searched:.1f} s after {pages} empty pages"
    )
    assert max(took.values()) < 1, took


@pytest.mark.timeout(3600)
async def test_a_long_queue_is_browsed_and_read_in_little_memory_and_nobody_is_disturbed(
    broker: rabbitmq.Broker, vhost: str
) -> None:
    client = rabbitmq_client(broker, vhost)
    await client.open()
    queue = await declare(client)
    for start in range(0, LETTERS, PUBLISHED_AT_ONCE):
        await bury_at_once(client, queue, min(PUBLISHED_AT_ONCE, LETTERS - start))
    hands = Hands()
    subscription = client.subscribe(queue, hands, prefetch=10)
    letters = client.dead_letters(queue)
    began = time.perf_counter()
    page, following = await letters.browse(None, 100)
    first = time.perf_counter() - began
    count = 0
    memory = _memory("VmRSS", anew=True)
    began = time.perf_counter()
    async for _ in letters.read():
        count += 1
    reading = time.perf_counter() - began
    again, _ = await letters.browse(None, 100)
    most = _memory("VmHWM")
    peak = most - memory
    await enqueue(client, queue, job())
    await eventually(lambda: len(hands.came) == 1, "the consumer is still served")
    depth = await client.depth(queue)
    await subscription.close()
    await client.close()
    print(  # noqa: T201 - a figure
        f"{LETTERS} letters: first page {first:.2f} s, all of them read in {reading:.0f} s, "
        f"{peak / MEBIBYTE:.0f} MiB more than before at the most, {most / MEBIBYTE:.0f} MiB in all"
    )
    assert (len(page), count) == (100, LETTERS)
    assert [each.job.id for each in again] == [each.job.id for each in page]
    assert following is not None
    assert depth is not None
    assert depth.dead == LETTERS
    assert peak < 64 * MEBIBYTE


def _memory(kind: str, *, anew: bool = False) -> int:
    """Return how many bytes this process has, or had at the most since it was counted anew."""
    if anew:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(rf"{kind}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
