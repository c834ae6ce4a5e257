"""A connection that comes back by itself, whatever became of the one before."""

import asyncio
import socket
import threading

import pytest
import uvloop

from namedqueue_sidecar.brokers.rabbitmq.connection import SupervisedConnection
from namedqueue_sidecar.brokers.rabbitmq.credentials import Credentials


class Door:
    """Accepts connections and ends them at once, as a proxy does whose broker is away."""

    def __init__(self) -> None:
        self.came = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._porter = threading.Thread(target=self._turn_away)
        self._porter.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._porter.join()
        self._socket.close()

    def _turn_away(self) -> None:
        while True:
            try:
                guest, _ = self._socket.accept()
            except OSError:
                return
            guest.close()
            self.came += 1


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_broker_that_ends_connections_at_once_is_tried_again(run: object) -> None:
    door = Door()
    credentials = Credentials(host="127.0.0.1", port=door.port, username="a", password="b")

    async def wait_for_a_third() -> None:
        connection = SupervisedConnection(lambda: credentials, "/", "test")
        connection.start()
        async with asyncio.timeout(20):
            while door.came < 3:  # noqa: ASYNC110 - a thread counts
                await asyncio.sleep(0.01)
        assert connection.problem == f"the broker at 127.0.0.1:{door.port} cannot be reached"
        await connection.close()

    assert callable(run)
    try:
        run(wait_for_a_third())
    finally:
        door.close()
