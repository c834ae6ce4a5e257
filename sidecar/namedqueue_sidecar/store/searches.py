"""Searches among the records of dead letters, as SQL.

Pages are in the order of the records' numbers. State, reason and cause lead to them by an index
that ends in the number, so a page costs what is on it, however many records there are. A text, a
piece of the payload or a time does not: for those a stretch of numbers is looked through, and then
the next one.
"""

from typing import Any

from sqlalchemy import ColumnElement, Select, func, literal, or_, select, union_all

from namedqueue_sidecar.store.port import Search
from namedqueue_sidecar.store.schema import dead_letters as table

_NUMBER = table.c.number


def needs_a_look(search: Search) -> bool:
    """Tell whether records have to be looked at to know if they are meant."""
    return any(
        wanted is not None for wanted in (search.text, search.contains, search.since, search.until)
    )


def records(
    mine: ColumnElement[bool],
    search: Search,
    limit: int,
    *more: ColumnElement[bool],
) -> Select[Any]:
    """Return the first records that the index leads to and that meet the conditions.

    Each state has a read of its own, which ends as early as the page does: no index leads through
    several states in the order of the numbers.
    """
    reads = [
        select(table)
        .where(mine, table.c.state == state.value, *_led_to(search), *more)
        .order_by(_NUMBER)
        .limit(limit)
        .subquery()
        for state in sorted(search.states)
    ]
    merged = union_all(*(select(read) for read in reads)).subquery()
    return select(merged).order_by(merged.c.number).limit(limit)


def span(mine: ColumnElement[bool], search: Search, after: int) -> Select[Any, Any]:
    """Return the first and the last number behind one that the index leads to; None if none."""
    reads = [
        select(func.min(_NUMBER).label("first"), func.max(_NUMBER).label("last")).where(
            mine, table.c.state == state.value, *_led_to(search), after < _NUMBER
        )
        for state in sorted(search.states)
    ]
    found = union_all(*reads).subquery()
    return select(func.min(found.c.first), func.max(found.c.last))


def looks(search: Search, dialect: str) -> list[ColumnElement[bool]]:
    """Return the conditions that no index answers."""
    found: list[ColumnElement[bool]] = []
    if search.since is not None:
        found.append(table.c.dead_lettered_at >= search.since)
    if search.until is not None:
        found.append(table.c.dead_lettered_at < search.until)
    if search.text is not None:
        told = (table.c.message, table.c.job_id, table.c.reason)
        found.append(or_(*(each.icontains(search.text, autoescape=True) for each in told)))
    if search.contains is not None:
        piece, payload = literal(search.contains, table.c.payload.type), table.c.payload
        place = (
            func.position(piece.op("IN")(payload))
            if dialect == "postgresql"
            else func.instr(payload, piece)
        )
        found.append(place > 0)
    return found


def conditions(search: Search, dialect: str) -> list[ColumnElement[bool]]:
    """Return all conditions of a search."""
    states = table.c.state.in_(sorted(state.value for state in search.states))
    return [states, *_led_to(search), *looks(search, dialect)]


def _led_to(search: Search) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if search.reason is not None:
        found.append(table.c.reason == search.reason)
    if search.cause is not None:
        found.append(table.c.cause == search.cause)
    return found
