"""Claims on keys: the rules of `namedqueue.idempotency` in SQL, many keys a statement.

Which of several pods gets a key is decided by the database in one statement; nothing is read
before it is written. Each statement is a transaction of its own and locks its rows in the order of
their keys, so that of two batches that overlap one waits for the other, and never both.

Whose clock? PostgreSQL's own, for the clocks of pods differ. A SQLite file has one machine's.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson
from sqlalchemy import BigInteger, Text, TextClause, bindparam, text

from namedqueue.idempotency import Claim, Refused, State, Terms, Wanted
from namedqueue_sidecar.store.database import Database

SWEPT_AT_ONCE: Final = 500

Ending: TypeAlias = tuple[Claim, State]
Now: TypeAlias = Callable[[], int]


class Claims:
    """The keys of one queue. A batch names no key twice."""

    def __init__(
        self,
        database: Database,
        namespace: str,
        queue: str,
        terms: Terms,
        *,
        now_ms: Now | None = None,
    ) -> None:
        """Take `now_ms` for the clock instead of the database's."""
        self.terms = terms
        self._database = database
        self._queue = {"namespace": namespace, "queue": queue}
        self._now = _clock(database, now_ms)
        self._statements = _STATEMENTS[database.dialect]

    async def claim(self, wanted: Sequence[Wanted]) -> Sequence[Claim | Refused]:
        """Claim what may be claimed, and say of the rest why not."""
        async with self._database.transaction() as connection:
            rows = await connection.execute(*self._filled("claim", wanted))
            got: dict[str, Claim | Refused] = {key: Claim(key, fence) for key, fence in rows}
            refused = [(each.key,) for each in wanted if each.key not in got]
            if refused:
                rows = await connection.execute(*self._filled("look", refused))
                got |= {key: _why(State(state)) for key, state in rows}
        return [got.get(each.key, Refused.IN_PROGRESS) for each in wanted]

    async def end(self, endings: Sequence[Ending]) -> Sequence[bool]:
        """Write how jobs ended; False for a claim that was lost before, of which nothing is."""
        given = [(*claim, state) for claim, state in endings]
        written = await self._keys("end", given)
        return [claim.key in written for claim, _ in endings]

    async def renew(self, claims: Sequence[Claim]) -> Sequence[bool]:
        """Renew leases, and say of each claim whether it is still ours."""
        kept = await self._keys("renew", claims)
        return [claim.key in kept for claim in claims]

    async def _keys(self, name: str, given: Sequence[tuple[object, ...]]) -> set[str]:
        async with self._database.transaction() as connection:
            return set((await connection.execute(*self._filled(name, given))).scalars())

    def _filled(
        self, name: str, given: Sequence[tuple[object, ...]]
    ) -> tuple[TextClause, Mapping[str, Any]]:
        """Return a statement and its parameters; `given` is its table of rows."""
        values = {
            **self._queue,
            "given": orjson.dumps([tuple(row) for row in given]).decode(),
            "lease": self.terms.lease,
            "ttl": self.terms.ttl,
            "now": self._now(),
        }
        return self._statements[name], values


async def sweep(database: Database, now_ms: Now | None = None) -> int:
    """Remove some records that have expired, of any queue, and return how many.

    Pods that sweep at the same time take different ones.
    """
    values = {"now": _clock(database, now_ms)(), "most": SWEPT_AT_ONCE}
    async with database.transaction() as connection:
        return (await connection.execute(_STATEMENTS[database.dialect]["sweep"], values)).rowcount


def _clock(database: Database, now_ms: Now | None) -> Callable[[], int | None]:
    if now_ms is not None:
        return now_ms
    if database.dialect == "postgresql":
        return lambda: None
    return lambda: time.time_ns() // 1_000_000


def _why(state: State) -> Refused:
    return Refused.IN_PROGRESS if state is State.PROCESSING else Refused.DUPLICATE


# The statements. `:given` is a JSON list of rows. A claim's fence is the moment it was made, or one
# more than the fence before: so it grows even if the record before has been swept away.

_DIALECTS: Final = {
    "postgresql": {
        "rows": "jsonb_array_elements(CAST(:given AS JSONB)) AS each",
        "now": "coalesce(:now, CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT))",
        "among": "= ANY (ARRAY",
        "end": ")",
        "larger": "greatest",
        "locked": "FOR UPDATE OF held",
        "skipping": "FOR UPDATE SKIP LOCKED",
    },
    "sqlite": {
        "rows": "json_each(:given) AS each",
        "now": ":now",
        "among": "IN",
        "end": "",
        "larger": "max",
        "locked": "",
        "skipping": "",
    },
}

_CLAIM: Final = """
WITH given AS (
    SELECT each.value ->> 0 AS key, each.value ->> 1 AS job_id,
        CAST(each.value ->> 2 AS INTEGER) AS redrives, {now} AS now
    FROM {rows}
)
INSERT INTO nq_idempotency AS held
    (namespace, queue, key, state, fence, job_id, redrives, lease_until, expires_at)
SELECT :namespace, :queue, key, 'processing', now, job_id, redrives,
    now + :lease, now + :lease + :ttl
FROM given WHERE true ORDER BY key
ON CONFLICT (namespace, queue, key) DO UPDATE SET
    state = excluded.state, fence = {larger}(excluded.fence, held.fence + 1),
    job_id = excluded.job_id, redrives = excluded.redrives,
    lease_until = excluded.lease_until, expires_at = excluded.expires_at
WHERE held.expires_at <= excluded.fence
    OR held.state = 'failed'
    OR (held.state = 'processing' AND held.lease_until <= excluded.fence)
    OR (held.state = 'dead_lettered'
        AND (held.job_id <> excluded.job_id OR held.redrives <> excluded.redrives))
RETURNING key, fence
"""

_LOOK: Final = """
SELECT key, state FROM nq_idempotency
WHERE namespace = :namespace AND queue = :queue
    AND key {among} (SELECT each.value ->> 0 FROM {rows}){end}
"""

_HELD: Final = """
WITH given AS MATERIALIZED (
    SELECT each.value ->> 0 AS key, CAST(each.value ->> 1 AS BIGINT) AS fence,
        each.value ->> 2 AS state
    FROM {rows}
), ours AS MATERIALIZED (
    SELECT held.key AS key, held.state AS was, given.state AS state
    FROM given CROSS JOIN nq_idempotency AS held
    WHERE held.namespace = :namespace AND held.queue = :queue
        AND held.key = given.key AND held.fence = given.fence
    ORDER BY held.key {locked}
)
UPDATE nq_idempotency
"""

_END: Final = f"""{_HELD}
SET state = CASE ours.state WHEN 'received' THEN ours.was ELSE ours.state END,
    lease_until = {{now}}, expires_at = {{now}} + :ttl
FROM ours
WHERE namespace = :namespace AND queue = :queue AND nq_idempotency.key = ours.key
    AND (ours.was = 'processing' OR (ours.was = 'failed' AND ours.state = 'dead_lettered'))
RETURNING nq_idempotency.key
"""

_RENEW: Final = f"""{_HELD}
SET lease_until = {{now}} + :lease, expires_at = {{now}} + :lease + :ttl
FROM ours
WHERE namespace = :namespace AND queue = :queue AND nq_idempotency.key = ours.key
    AND ours.was = 'processing'
RETURNING nq_idempotency.key
"""

_SWEEP: Final = """
DELETE FROM nq_idempotency WHERE (namespace, queue, key) IN (
    SELECT namespace, queue, key FROM nq_idempotency
    WHERE expires_at <= {now} ORDER BY expires_at LIMIT :most {skipping}
)
"""

_PARAMETERS: Final = {
    "namespace": Text,
    "queue": Text,
    "given": Text,
    "lease": BigInteger,
    "ttl": BigInteger,
    "now": BigInteger,
    "most": BigInteger,
}


def _statement(sql: str, dialect: str) -> TextClause:
    written = sql.format_map(_DIALECTS[dialect])
    named = [name for name in _PARAMETERS if f":{name}" in written]
    return text(written).bindparams(*(bindparam(name, type_=_PARAMETERS[name]) for name in named))


_STATEMENTS: Final = {
    dialect: {
        "claim": _statement(_CLAIM, dialect),
        "look": _statement(_LOOK, dialect),
        "end": _statement(_END, dialect),
        "renew": _statement(_RENEW, dialect),
        "sweep": _statement(_SWEEP, dialect),
    }
    for dialect in _DIALECTS
}
