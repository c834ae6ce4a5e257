"""Free TCP ports on loopback.

They come from below the range that the kernel gives to outgoing connections and below that of
NodePorts. So a server that was killed finds its port free when it returns, and a client that
keeps calling it meanwhile cannot end up connected to itself.
"""

import random
import socket

_CHOICE = range(15000, 30000)


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nothing listens on right now."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` different free ports, at random, so that callers at once seldom collide."""
    # Not random.sample: a seed that a test sets must not make two processes choose alike.
    found: list[int] = []
    for port in random.SystemRandom().sample(_CHOICE, len(_CHOICE)):
        if _can_listen(port, host):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} of the ports {_CHOICE.start} to {_CHOICE.stop} are free")


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether something listens there."""
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex((host, port)) == 0


def _can_listen(port: int, host: str) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind((host, port))
        except OSError:
            return False
        return True
