"""`nq run`: the whole data plane on a laptop, with the app beside it."""

import asyncio
import signal
from asyncio import FIRST_COMPLETED
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from namedqueue.api.namedqueue import Ephemeral, NamedQueue
from namedqueue_cli.brokers import open_broker
from namedqueue_cli.dashboard import Dashboard, Row, make_dashboard
from namedqueue_cli.manifests import Fingerprint, fingerprint, load_queues
from namedqueue_cli.stores import open_store
from namedqueue_cli.supervising import App
from namedqueue_sidecar.api.server import Server
from namedqueue_sidecar.brokers.port import Broker
from namedqueue_sidecar.consuming.streaming import StreamWorker
from namedqueue_sidecar.consuming.working import unsupported
from namedqueue_sidecar.ending import end
from namedqueue_sidecar.plane import Plane

_REFRESH_SECONDS = 0.25
_RELOAD_SECONDS = 1.0
_DRAIN_PATIENCE = 20.0
_CLOSE_PATIENCE = 60.0
_PATIENCE_WITH_FIGURES = 10.0


class _WithCommand(click.Command):
    """Keeps what follows `--` as the app's command line; click would mix the two lists."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut the app's command off, and parse the rest as usual."""
        cut = args.index("--") if "--" in args else len(args)
        ctx.obj = tuple(args[cut + 1 :])
        return super().parse_args(ctx, args[:cut])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Show the command in the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


@click.command(cls=_WithCommand)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--port", default=3550, show_default=True, help="Where the API listens on loopback.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Keep jobs in here.")
@click.option(
    "--broker", metavar="URL", help="Use a RabbitMQ, as in amqp://user:secret@host/vhost."
)
@click.option("--management", metavar="URL", help="Its management API; by default port 15672.")
@click.option(
    "--allow-ephemeral/--no-allow-ephemeral",
    default=True,
    show_default=True,
    help="Whether a job for a queue without a manifest makes an ephemeral one.",
)
@click.option(
    "--allow-edit", is_flag=True, help="Let a dead letter be sent back with another payload."
)
@click.option("--once", is_flag=True, help="End when COMMAND ends, with its exit code.")
@click.pass_obj
def run(
    command: tuple[str, ...],
    paths: tuple[str, ...],
    port: int,
    data: Path | None,
    broker: str | None,
    management: str | None,
    allow_ephemeral: bool,
    allow_edit: bool,
    once: bool,
) -> None:
    """Run the queues of the manifests in PATH on this machine, and COMMAND as their app.

    Jobs are kept in memory, in a file under --data that survives anything, or in a RabbitMQ, where
    the queues are made in the given vhost with the given account. Manifests are read
    again when they change. The app is started again when it dies and finds the API in $NQ_URL.
    Ctrl-C finishes the jobs in flight and ends.

    \b
    nq run queue.yaml -- python app.py
    nq run --data ./jobs manifests/
    """  # noqa: D301  # \b is click's mark for lines kept as they are
    if once and not command:
        raise click.UsageError("--once needs a COMMAND after --")
    kind = Ephemeral() if allow_ephemeral else None
    started = _Run([Path(path) for path in paths], command, port, kind, allow_edit=allow_edit)
    opening = partial(open_broker, data, broker, management)
    raise click.exceptions.Exit(asyncio.run(started.main(opening, data, once=once)))


class _Run:
    def __init__(
        self,
        paths: Sequence[Path],
        command: Sequence[str],
        port: int,
        unknown: Ephemeral | None,
        *,
        allow_edit: bool,
    ) -> None:
        self._paths, self._command, self._port, self._unknown = paths, command, port, unknown
        self._allow_edit = allow_edit

    async def main(
        self, opening: Callable[[], Awaitable[Broker]], data: Path | None, *, once: bool
    ) -> int:
        """Run until told to stop; return the exit code."""
        seen = fingerprint(self._paths)  # before they are read, so that no change is missed
        queues = load_queues(self._paths)
        namespace = _namespace(queues)
        broker = await opening()
        try:
            store = await open_store(data)
        except click.ClickException:
            await broker.close()
            raise
        plane = Plane(
            broker,
            namespace,
            allow_ephemeral=self._unknown,
            allow_edit=self._allow_edit,
            store=store,
        )
        server = Server(plane)
        try:
            # A job that came before its queue would make an ephemeral one of that name.
            await _applied(plane, queues)
            port = await _listening(server, self._port)
            url = f"http://127.0.0.1:{port}"
            hint = f"{url}   nq enqueue {queues[0].metadata.name} '{{}}'   Ctrl-C ends"
            with make_dashboard(hint) as dashboard:
                dashboard.say(f"serving {', '.join(str(key) for key in plane.queues)} at {url}")
                return await self._follow(plane, dashboard, url, seen, once=once)
        finally:
            closing = asyncio.create_task(_let_go(plane, server))
            await asyncio.wait({closing}, timeout=_CLOSE_PATIENCE)
            if closing.done():
                closing.result()

    async def _follow(
        self, plane: Plane, dashboard: Dashboard, url: str, seen: Fingerprint, *, once: bool
    ) -> int:
        """Run the app and show what happens, until the app is done, or a signal comes."""
        app = App(self._command, {"NQ_URL": url}, partial(dashboard.say, source="app"))
        stopped = asyncio.create_task(_signalled())
        background: list[asyncio.Task[None]] = [
            asyncio.create_task(_showing(plane, dashboard)),
            asyncio.create_task(self._reloading(plane, dashboard, seen)),
        ]
        working = asyncio.create_task(app.run_once() if once else _kept_running(app, self._command))
        try:
            await asyncio.wait({stopped, working, *background}, return_when=FIRST_COMPLETED)
            for task in background:
                if task.done():
                    task.result()
            if stopped.done():
                dashboard.say("finishing the jobs in flight")
                await plane.drain(_DRAIN_PATIENCE)
                return 0
            return working.result()
        finally:
            await app.stop()
            await _show(plane, dashboard)
            await end(stopped, working, *background)

    async def _reloading(self, plane: Plane, dashboard: Dashboard, seen: Fingerprint) -> None:
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            try:
                now = fingerprint(self._paths)
                if now == seen:
                    continue
                seen = now
                await _applied(plane, load_queues(self._paths))
            except (OSError, click.ClickException, click.exceptions.Exit) as error:
                dashboard.say(f"the manifests are not applied: {error}")
            else:
                dashboard.say("the manifests changed and are applied")


async def _let_go(plane: Plane, server: Server) -> None:
    """Finish what is in flight and close; what hangs is left to the end of the process."""
    await plane.drain(_DRAIN_PATIENCE)
    await server.close()
    await plane.close()


async def _listening(server: Server, port: int) -> int:
    try:
        return await server.listen("127.0.0.1", port)
    except OSError:
        raise click.ClickException(
            f"port {port} is taken; choose another with --port, or stop what listens there"
        ) from None


async def _applied(plane: Plane, queues: Sequence[NamedQueue]) -> None:
    reasons = [(queue.metadata.name, unsupported(queue, plane.store)) for queue in queues]
    refused = [f"{name}: {why}" for name, why in reasons if why]
    if refused:
        raise click.ClickException("\n".join(refused))
    try:
        await plane.apply(queues, declare=True, work=True)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


async def _kept_running(app: App, command: Sequence[str]) -> int:
    if command:
        await app.run_for_ever()
    for_ever: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    return await for_ever


async def _showing(plane: Plane, dashboard: Dashboard) -> None:
    while True:
        await _show(plane, dashboard)
        await asyncio.sleep(_REFRESH_SECONDS)


async def _show(plane: Plane, dashboard: Dashboard) -> None:
    """Show the queues; while a broker does not say how full they are, the last figures stay."""
    rows = None
    with suppress(Exception):  # a broker that goes in the middle of a question ends it in many ways
        async with asyncio.timeout(_PATIENCE_WITH_FIGURES):
            rows = await _rows(plane)
    if rows is not None:
        dashboard.show(rows)


async def _rows(plane: Plane) -> list[Row]:
    rows = []
    for key in tuple(plane.queues):
        depth, worker = await plane.broker.depth(key), plane.workers.get(key)
        if depth is not None:
            row = Row(key.name, *depth)
            if isinstance(worker, StreamWorker):
                row = row.with_groups(worker)
            elif worker is not None:
                row = row.with_tally(worker.tally)
            rows.append(row)
    return rows


async def _signalled() -> None:
    """Return at Ctrl-C or SIGTERM; a second one is not caught and ends at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    await stop.wait()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.remove_signal_handler(sign)


def _namespace(queues: Sequence[NamedQueue]) -> str:
    """Return the one namespace of the manifests, which the API then serves."""
    names = {queue.metadata.namespace for queue in queues}
    if len(names) > 1:
        raise click.ClickException(
            f"the manifests are of several namespaces ({', '.join(sorted(names))}); "
            "run those of one at a time"
        )
    return names.pop()
