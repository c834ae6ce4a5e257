"""Records of dead letters: the story, the payload, and how far people are with each.

A record is written once, under a key that the letter has for whoever meets it
(`namedqueue.triage.letter_key`): by the worker that buries the job, or by a look at the queue that
found one which the broker brought there. Records are numbered as they come, and a page begins
behind a number, so pages stay as they are while new ones arrive.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import orjson
from sqlalchemy import Row, Text, Update, and_, cast, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from namedqueue.deadletters import decode_dead_letter, encode_dead_letter
from namedqueue.triage import NEXT, OPEN, Review, letter_key
from namedqueue_sidecar.store.away import Slow
from namedqueue_sidecar.store.database import Database
from namedqueue_sidecar.store.port import Group, Kept, Met, Page, Search
from namedqueue_sidecar.store.schema import dead_letters as table
from namedqueue_sidecar.store.searches import conditions, looks, needs_a_look, records, span

SWEPT_AT_ONCE: Final = 500
_MOST_GROUPS: Final = 1000
_FIRST_LOOK: Final = 200
_LONGEST_LOOK: Final = 100_000
_QUICK: Final = 0.1
_LOOK_SECONDS: Final = 1.0
"""After which a search hands out what it has found, and where to go on."""


class Letters:
    """The records of one queue."""

    def __init__(self, database: Database, namespace: str, queue: str) -> None:
        self._database = database
        self._queue = {"namespace": namespace, "queue": queue}
        self._mine = and_(table.c.namespace == namespace, table.c.queue == queue)

    async def write(self, met: Sequence[Met]) -> None:
        """Keep records of letters; those that are known stay as they are.

        A job that was sent again after its letter was closed or replayed, and failed again, is
        another letter: the older record gives up its key.
        """
        rows = {row["letter"]: row for row in (self._row(each) for each in met)}
        on_postgresql = self._database.dialect == "postgresql"
        statement = (
            postgresql.insert(table).on_conflict_do_nothing()
            if on_postgresql
            else sqlite.insert(table).on_conflict_do_nothing()
        )
        async with self._database.transaction() as connection:
            await connection.execute(self._yielding(rows))
            await connection.execute(statement, [rows[key] for key in sorted(rows)])

    async def page(self, search: Search, after: int, limit: int) -> Page:
        """Return the first records behind a number, the oldest first."""
        if needs_a_look(search):
            return await self._look(search, after, limit)
        async with self._database.transaction(reading=True) as connection:
            found = records(self._mine, search, limit + 1, table.c.number > after)
            kept = [_kept(row) for row in await connection.execute(found)]
        return Page(kept[:limit], kept[limit - 1].number if len(kept) > limit else None)

    async def _look(self, search: Search, after: int, limit: int) -> Page:
        """Look through stretch after stretch, each about as long as can be read quickly."""
        async with self._database.transaction(reading=True) as connection:
            start, last = (await connection.execute(span(self._mine, search, after))).one()
        found: list[Kept] = []
        wanted = looks(search, self._database.dialect)
        ends, length = time.monotonic() + _LOOK_SECONDS, _FIRST_LOOK
        while last is not None:
            end, began = min(start + length - 1, last), time.monotonic()
            within = table.c.number.between(start, end)
            rows = records(self._mine, search, limit - len(found), within, *wanted)
            try:
                async with self._database.transaction(reading=True) as connection:
                    found += [_kept(row) for row in await connection.execute(rows)]
            except Slow:  # there is much more to read here than before
                if length == _FIRST_LOOK:
                    raise
                length = _FIRST_LOOK
                continue
            if len(found) == limit:
                return Page(found, found[-1].number)
            if end == last:
                break
            if time.monotonic() > ends:
                return Page(found, end)
            quick = time.monotonic() - began < _QUICK
            start, length = end + 1, min(2 * length, _LONGEST_LOOK) if quick else length
        return Page(found, None)

    async def find(self, job_id: str) -> Kept | None:
        """Return the newest record of a job."""
        if "\0" in job_id:  # PostgreSQL has no text with it, and refuses to look
            return None
        found = select(table).where(self._mine, table.c.job_id == job_id)
        async with self._database.transaction(reading=True) as connection:
            row = (await connection.execute(found.order_by(table.c.number.desc()).limit(1))).first()
        return None if row is None else _kept(row)

    async def groups(self, search: Search) -> Sequence[Group]:
        """Count records by group, the largest first."""
        at = table.c.dead_lettered_at
        counted = (
            select(
                table.c.cause,
                table.c.reason,
                func.count().label("letters"),
                func.min(at).label("first"),
                func.max(at).label("last"),
                func.min(table.c.number).label("example"),
            )
            .where(self._mine, *conditions(search, self._database.dialect))
            .group_by(table.c.cause, table.c.reason)
            .order_by(func.count().desc(), table.c.cause)
            .limit(_MOST_GROUPS)
            .subquery()
        )
        shown = select(counted, table.c.message, table.c.job_id).join(
            table, table.c.number == counted.c.example
        )
        ordered = shown.order_by(counted.c.letters.desc(), counted.c.cause)
        async with self._database.transaction(reading=True) as connection:
            rows = await connection.execute(ordered)
            return [
                Group(r.cause, r.reason, r.message, r.letters, r.first, r.last, r.job_id)
                for r in rows
            ]

    async def review(self, number: int, to: Review) -> bool:
        """Move a record to another state; False if its state does not lead there any more."""
        before = [state.value for state, following in NEXT.items() if to in following]
        moving = update(table).where(table.c.number == number, table.c.state.in_(before))
        async with self._database.transaction() as connection:
            return bool((await connection.execute(moving.values(state=to.value))).rowcount)

    async def replayed(
        self, letters: Collection[str], redrive: str, edited_to: str | None = None
    ) -> None:
        """Note that the jobs of these letters were sent back, or an edited one in their place."""
        marking = update(table).where(
            self._mine, table.c.letter.in_(letters), table.c.state.in_([s.value for s in OPEN])
        )
        values = {"state": Review.REPLAYED.value, "redrive": redrive, "edited_to": edited_to}
        async with self._database.transaction() as connection:
            await connection.execute(marking.values(values))

    async def intend(self, number: int, edited_to: str | None) -> None:
        """Note that another job is about to be sent in place of a letter, or that none is."""
        still_open = table.c.state.in_([state.value for state in OPEN])
        noting = update(table).where(table.c.number == number, still_open)
        async with self._database.transaction() as connection:
            await connection.execute(noting.values(edited_to=edited_to))

    async def remove(self, number: int) -> None:
        """Forget a record."""
        async with self._database.transaction() as connection:
            await connection.execute(delete(table).where(table.c.number == number))

    async def count_open(self) -> int:
        """Count the records whose jobs should still be among the dead letters."""
        is_open = conditions(Search(), self._database.dialect)
        counting = select(func.count()).where(self._mine, *is_open)
        async with self._database.transaction(reading=True) as connection:
            return int((await connection.execute(counting)).scalar_one())

    def _yielding(self, rows: Mapping[str, Mapping[str, Any]]) -> Update:
        """Take their keys from records that are done with and older than all of these letters."""
        oldest = min(row["dead_lettered_at"] for row in rows.values())
        done_with = table.c.state.not_in([state.value for state in OPEN])
        return (
            update(table)
            .where(self._mine, table.c.letter.in_(rows), done_with)
            .where(table.c.dead_lettered_at < oldest)
            .values(letter=cast(table.c.number, Text) + "/" + table.c.letter)
        )

    def _row(self, met: Met) -> Mapping[str, Any]:
        record = met.record
        properties, headers = encode_dead_letter(record)
        return {
            **self._queue,
            "letter": letter_key(record),
            "job_id": record.job.id,
            "state": Review.PENDING.value,
            "reason": record.reason.code,
            "message": record.reason.message,
            "cause": met.cause,
            "dead_lettered_at": record.dead_lettered_at,
            "expires_at": record.dead_lettered_at + met.retention_ms,
            "properties": orjson.dumps(properties).decode(),
            "headers": orjson.dumps(headers).decode(),
            "payload": record.job.payload,
        }


async def sweep(database: Database, now: int) -> int:
    """Remove some records whose retention is over, of any queue, and return how many."""
    old = select(table.c.number).where(table.c.expires_at <= now).order_by(table.c.expires_at)
    some = old.limit(SWEPT_AT_ONCE).with_for_update(skip_locked=True)
    async with database.transaction() as connection:
        gone = await connection.execute(delete(table).where(table.c.number.in_(some)))
        return gone.rowcount


def _kept(row: Row[Any]) -> Kept:
    record = decode_dead_letter(
        orjson.loads(row.properties),
        orjson.loads(row.headers),
        row.payload,
        queue=row.queue,
        fresh_id=row.job_id,
        now=row.dead_lettered_at,
    )
    return Kept(row.number, record, Review(row.state), row.cause, row.redrive, row.edited_to)
