"""What `nq run` shows: a live table of the queues, or log lines where there is no terminal."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from namedqueue_sidecar.consuming.streaming import StreamWorker
from namedqueue_sidecar.consuming.tally import Tally

_NUMBERS = ("READY", "IN FLIGHT", "WAITING", "DEAD", "DONE", "JOBS/S", "FAILED")


class Row(NamedTuple):
    """A queue at one moment."""

    queue: str
    ready: int
    in_flight: int
    waiting: int
    dead: int
    done: int = 0
    failed: int = 0
    last_error: str = ""

    def with_tally(self, tally: Tally) -> "Row":
        """Add what its worker counted."""
        return self._replace(done=tally.processed, failed=tally.failed, last_error=tally.last_error)

    def with_groups(self, worker: StreamWorker) -> "Row":
        """Add what the groups of a stream did; a group that halts is the last error."""
        tallies = [group.tally for group in worker.groups.values()]
        errors = [*worker.troubles, *(tally.last_error for tally in tallies if tally.last_error)]
        return self._replace(
            in_flight=len(worker.flights),
            done=sum(tally.processed for tally in tallies),
            failed=sum(tally.failed for tally in tallies),
            last_error=next(iter(errors), ""),
        )


class Dashboard(Protocol):
    """Something that a person follows."""

    def show(self, rows: Iterable[Row]) -> None:
        """Show the queues as they are now."""

    def say(self, line: str, source: str = "nq") -> None:
        """Show a line."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class LiveTable:
    """A table at the bottom of the terminal; lines scroll above it."""

    def __init__(self, console: Console, footer: str) -> None:
        self._console, self._footer = console, footer
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._seen: dict[str, tuple[float, int]] = {}

    def show(self, rows: Iterable[Row]) -> None:
        """Draw the table anew."""
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
        table.add_column("QUEUE", no_wrap=True)
        for name in _NUMBERS:
            table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
        table.add_column("LAST ERROR", no_wrap=True, overflow="ellipsis", ratio=1)
        for row in rows:
            table.add_row(*self._cells(row))
        self._live.update(Group(table, Text(self._footer, style="dim")), refresh=True)

    def say(self, line: str, source: str = "nq") -> None:
        """Print a line above the table."""
        style = "cyan" if source == "nq" else "dim"
        self._console.print(Text.assemble((f"{source:>4} │ ", style), line))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    def _cells(self, row: Row) -> list[Any]:
        dead = Text(str(row.dead), style="bold red" if row.dead else "")
        waiting = Text(str(row.waiting), style="yellow" if row.waiting else "")
        numbers = (str(row.ready), str(row.in_flight), waiting, dead, str(row.done))
        return [row.queue, *numbers, self._rate(row), str(row.failed), Text(row.last_error)]

    def _rate(self, row: Row) -> str:
        now = time.monotonic()
        before, done = self._seen.get(row.queue, (now, row.done))
        if now - before >= 1 or row.queue not in self._seen:
            self._seen[row.queue] = (now, row.done)
        return f"{(row.done - done) / (now - before):.0f}" if now > before else "0"


class Lines:
    """A line for each change, at most one a second for each queue."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: dict[str, tuple[float, Row]] = {}

    def show(self, rows: Iterable[Row]) -> None:
        """Print the queues that changed."""
        for row in rows:
            at, before = self._shown.get(row.queue, (0.0, None))
            if row != before and time.monotonic() - at >= 1:
                self._shown[row.queue] = (time.monotonic(), row)
                self.say(
                    f"{row.queue}: ready={row.ready} in-flight={row.in_flight} "
                    f"waiting={row.waiting} dead={row.dead} done={row.done} failed={row.failed}"
                )

    def say(self, line: str, source: str = "nq") -> None:
        """Print a line."""
        self._console.print(f"{source}: {line}", markup=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        return


def make_dashboard(footer: str) -> LiveTable | Lines:
    """Return what suits where the output goes."""
    console = Console()
    return LiveTable(console, footer) if console.is_terminal else Lines(console)
