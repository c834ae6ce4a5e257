"""A port that leads to another one of this machine, and that a test can make fall silent.

It gives one server an address where pods reach the machine, and it stands for the network between
two parts: a connection that it silences stays open, and nothing goes through it any more, as behind
a router that has forgotten it.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

_CHUNK = 65536


class Relay:
    """A port, and what becomes of the connections to it."""

    def __init__(self) -> None:
        self.port = 0
        self._over = threading.Event()
        self._silence = threading.Event()
        """Of the connections that are there now; those to come have another."""
        self._deaf = False

    def silence(self, *, for_good: bool = False) -> None:
        """Let nothing through the connections that are there; `for_good`, through new ones too."""
        self._silence.set()
        self._silence = threading.Event()
        self._deaf = for_good

    def hear(self) -> None:
        """Let new connections through again; the silent ones stay so."""
        self._deaf = False

    def end(self) -> None:
        """Let go of the connections that were silenced."""
        self._over.set()

    def carry(self, here: socket.socket, there: socket.socket) -> None:
        """Copy both ways until both ends have closed."""
        silence = self._silence
        if self._deaf:
            silence = threading.Event()
            silence.set()
        back = threading.Thread(target=self._copy, args=(there, here, silence), daemon=True)
        back.start()
        self._copy(here, there, silence)
        back.join()

    def _copy(self, source: socket.socket, target: socket.socket, silence: threading.Event) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if silence.is_set():
                    self._over.wait()
                    return
                target.sendall(chunk)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def relayed(host: str, port: int, *, at: int = 0) -> Iterator[int]:
    """Listen on an address, at any free port or a given one; give the port.

    What comes in goes to the port on loopback, and back.
    """
    with relay_to(port, host, at=at) as relay:
        yield relay.port


@contextmanager
def relay_to(port: int, host: str = "127.0.0.1", *, at: int = 0) -> Iterator[Relay]:
    """Do the same, and let the test say what goes through."""
    relay = Relay()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", port)) as there:
                relay.carry(self.request, there)

    class Relays(ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        allow_reuse_address = True

        def handle_error(self, _request: Any, _client: Any) -> None:
            """Expect it: pods and brokers end while they talk."""

    with Relays((host, at), Handler) as server:
        relay.port = int(server.server_address[1])
        serving = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        yield relay
        relay.end()
        server.shutdown()
        serving.join()
