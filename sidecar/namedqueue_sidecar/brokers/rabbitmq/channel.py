"""A channel without a task, a future or a lock for each message.

aiormq gives every delivery a task and every publish a future, a timer and a turn at a lock, and it
finds the publish that a return belongs to by its message id alone, so that of two unroutable jobs
of one id one would be reported as confirmed. This channel replaces just these four of its methods
by plain calls, and gathers what is written within one turn of the event loop into one write.
Handshakes, heartbeats, remote calls and closing stay aiormq's.

aiormq cancels what waits for an answer when a connection is found dead. To whoever asked that would
look like his own end; here it is a ConnectionError.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, TypeAlias

import pamqp.frame
from aiormq.abc import ChannelFrame, ConfirmationFrameType, DeliveredMessage
from aiormq.channel import Channel
from aiormq.connection import Connection
from aiormq.exceptions import ChannelInvalidStateError
from pamqp import commands as spec
from pamqp.base import Frame
from pamqp.header import ContentHeader

RPC_SECONDS: Final = 10.0
"""How long the broker may take to answer a remote call before the channel is given up."""

_FRAMES_READ_AHEAD: Final = 512
_GONE: Final = "the connection to the broker is gone"

Message: TypeAlias = DeliveredMessage
Sink: TypeAlias = Callable[[DeliveredMessage], Awaitable[None] | None]


class LeanChannel(Channel):
    """A channel whose messages arrive by plain calls.

    `on_message` may return something to wait for, which holds up the whole connection until then;
    only a connection that serves nothing else may do that.
    """

    def __init__(self, connection: Connection, number: int, *, confirms: bool) -> None:
        super().__init__(
            connection, number, publisher_confirms=confirms, frame_buffer=_FRAMES_READ_AHEAD
        )
        self.on_message: Sink = _ignore
        self.on_return: Callable[[DeliveredMessage], None] = _ignore
        self.on_confirm: Callable[[ConfirmationFrameType], None] = _ignore
        self._unwritten: list[bytes] = []
        self._writing = False
        self._written = asyncio.Event()
        self._written.set()

    @classmethod
    async def opened(cls, connection: Connection, *, confirms: bool = False) -> "LeanChannel":
        """Open a channel on a connection that stands; ConnectionError if it does not any more.

        aiormq would wait in vain for an answer on a connection that is just being closed.
        """
        if not connection.is_opened:
            raise ConnectionError(_GONE)
        number = next(each for each in count(1) if each not in connection.channels)
        channel = cls(connection, number, confirms=confirms)
        connection.channels[number] = channel
        opening = asyncio.ensure_future(channel.open(timeout=RPC_SECONDS))
        ended = connection.closing
        try:
            await asyncio.wait({opening, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise ConnectionError(_GONE)
            with _gone_is_an_error():
                opening.result()
        finally:
            opening.cancel()
            ended.cancel()
        return channel

    async def rpc(self, frame: Frame, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - aiormq's
        """Ask the broker; ConnectionError if the connection is gone before it answers."""
        with _gone_is_an_error():
            return await super().rpc(frame, timeout=timeout)

    async def close(self, *arguments: Any, **named: Any) -> None:
        """Close the channel; ConnectionError if the connection is gone before that is done."""
        with _gone_is_an_error():
            await super().close(*arguments, **named)

    def send(self, payload: bytes) -> None:
        """Write frames with the others of this turn; nothing happens on a closed channel."""
        if self.is_closed:
            return
        self._unwritten.append(payload)
        if not self._writing:
            self._writing = True
            self._written.clear()
            self.create_task(self._write())

    async def flush(self) -> None:
        """Wait until all that was sent is on its way, or the channel is gone."""
        if not self.is_closed:
            await self._written.wait()

    def method(self, frame: Any) -> bytes:
        """Return the bytes of a method frame on this channel."""
        return pamqp.frame.marshal(frame, self.number)

    async def _write(self) -> None:
        try:
            while self._unwritten:
                payload = b"".join(self._unwritten)
                self._unwritten.clear()
                await self.write_queue.put(ChannelFrame(payload=payload, should_close=False))
        finally:
            self._writing = False
            self._written.set()

    async def _message(self, frame: Any) -> DeliveredMessage:
        header = await self._get_frame()
        if not isinstance(header, ContentHeader):
            raise ValueError(f"the broker sent {header!r} instead of a content header")  # noqa: TRY004 - a broken stream, not a wrong argument
        return await self._read_content(frame, header)

    async def _on_deliver_frame(self, frame: spec.Basic.Deliver) -> None:
        waiting = self.on_message(await self._message(frame))
        if waiting is not None:
            await waiting

    async def _on_return_frame(self, frame: spec.Basic.Return) -> None:
        self.on_return(await self._message(frame))

    async def _on_confirm_frame(self, frame: ConfirmationFrameType) -> None:
        self.on_confirm(frame)


@contextmanager
def _gone_is_an_error() -> Iterator[None]:
    """Tell the end of a connection from that of the task, which somebody has to ask for."""
    try:
        yield
    except ChannelInvalidStateError:
        raise ConnectionError(_GONE) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ConnectionError(_GONE) from None


def _ignore(_: object) -> None:
    """Take no notice."""
