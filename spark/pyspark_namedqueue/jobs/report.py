"""A page that shows why jobs died, and when: bars over time by reason, and a table of the reasons.

One file without scripts, styles or pictures from elsewhere, so that it can be mailed or kept.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Final, NamedTuple

_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 960, 320, 48, 24
_COLOURS: Final = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#a463f2", "#97bbf5")
_OTHER: Final = "#9c9c9c"
_MOST_BARS: Final = 240
_STEPS: Final = tuple(
    timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 180, 360, 720, 1440, 7 * 1440)
)


class Count(NamedTuple):
    """How many letters of a reason a stretch of time has."""

    begins: datetime
    reason: str
    letters: int


def step_for(first: datetime, last: datetime) -> timedelta:
    """Return how long a bar should be: a round time, and not too many bars."""
    return next((step for step in _STEPS if (last - first) / step < _MOST_BARS), _STEPS[-1])


def page(title: str, counts: Sequence[Count], step: timedelta) -> str:
    """Return the page of these counts, each of a stretch as long as `step`."""
    totals: Counter[str] = Counter()
    for each in counts:
        totals[each.reason] += each.letters
    reasons = [reason for reason, _ in totals.most_common()]
    colour = {
        reason: _COLOURS[place] if place < len(_COLOURS) else _OTHER
        for place, reason in enumerate(reasons)
    }
    rows = "\n".join(_row(reason, colour[reason], counts) for reason in reasons)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto }}
table {{ border-collapse: collapse }} td, th {{ padding: .2rem .8rem; text-align: left }}
td.n {{ text-align: right }} svg text {{ font-size: 11px; fill: #666 }}
</style>
<h1>{escape(title)}</h1>
<p>{totals.total():,} dead letters; a bar is {_spoken(step)}, in UTC.</p>
{_picture(counts, step, reasons, colour)}
<table>
<tr><th></th><th>Reason</th><th>Letters</th><th>First seen in</th><th>Last seen in</th></tr>
{rows}
</table>
</html>
"""


def _picture(
    counts: Sequence[Count], step: timedelta, reasons: Sequence[str], colour: dict[str, str]
) -> str:
    if not counts:
        return "<p>Nothing failed.</p>"
    first, last = min(each.begins for each in counts), max(each.begins for each in counts)
    bars = (last - first) // step + 1
    heights: Counter[datetime] = Counter()
    for each in counts:
        heights[each.begins] += each.letters
    highest = max(heights.values())
    wide = (_WIDTH - _LEFT) / bars
    tall = (_HEIGHT - _BOTTOM) / highest
    drawn, stacked = [], Counter[datetime]()
    for each in sorted(counts, key=lambda each: reasons.index(each.reason)):
        stacked[each.begins] += each.letters
        x = _LEFT + (each.begins - first) // step * wide
        y = _HEIGHT - _BOTTOM - stacked[each.begins] * tall
        said = escape(f"{_written(each.begins)}  {each.reason}: {each.letters:,}")
        drawn.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(wide - 1, 1):.1f}" '
            f'height="{each.letters * tall:.1f}" fill="{colour[each.reason]}">'
            f"<title>{said}</title></rect>"
        )
    foot = _HEIGHT - 6
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="dead letters over time">\n'
        + "\n".join(drawn)
        + f'\n<text x="0" y="11">{highest:,}</text><text x="0" y="{_HEIGHT - _BOTTOM}">0</text>'
        f'<text x="{_LEFT}" y="{foot}">{_written(first)}</text>'
        f'<text x="{_WIDTH}" y="{foot}" text-anchor="end">{_written(last)}</text></svg>'
    )


def _row(reason: str, colour: str, counts: Sequence[Count]) -> str:
    own = [each for each in counts if each.reason == reason]
    first, last = min(each.begins for each in own), max(each.begins for each in own)
    return (
        f'<tr><td style="background:{colour}"></td><td>{escape(reason)}</td>'
        f'<td class="n">{sum(each.letters for each in own):,}</td>'
        f"<td>{_written(first)}</td><td>{_written(last)}</td></tr>"
    )


def _written(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M}"


def _spoken(step: timedelta) -> str:
    minutes = step // timedelta(minutes=1)
    for unit, size in (("day", 1440), ("hour", 60), ("minute", 1)):
        if minutes % size == 0:
            number = minutes // size
            return f"{number} {unit}s" if number > 1 else f"one {unit}"
    return f"{minutes} minutes"
