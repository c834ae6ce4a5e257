"""Free TCP ports on loopback.

They come from below the range that the kernel gives to outgoing connections and below that of
NodePorts. So a server that was killed finds its port free when it returns, and a client that
keeps calling it meanwhile cannot end up connected to itself.

A server may take its time before it listens. So that nobody else is given its port meanwhile, each
process hands out ports of its own, a hundred that no other process has.
"""

import random
import socket
from functools import cache

_CHOICE = range(15000, 30000)
_EACH = 100


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nothing listens on right now."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` different free ports, those first that were given out longest ago."""
    own = _ours()
    found: list[int] = []
    for port in tuple(own):
        if _can_listen(port, host):
            found.append(port)
            own.remove(port)
            own.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} of the ports {min(own)} to {max(own)} are free")


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether something listens there."""
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex((host, port)) == 0


@cache
def _ours() -> list[int]:
    """Take a hundred ports until this process ends; a name that only one can have tells whose."""
    # Not random.sample: a seed that a test sets must not make two processes choose alike.
    starts = _CHOICE[::_EACH]
    for start in random.SystemRandom().sample(starts, len(starts)):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0namedqueue-testbed-ports-{start}")
        except OSError:
            name.close()
            continue
        name.detach()  # it stays bound, and is let go by nothing but the end
        return list(range(start, start + _EACH))
    raise OSError(f"other processes have all of the ports {_CHOICE.start} to {_CHOICE.stop}")


def _can_listen(port: int, host: str) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind((host, port))
        except OSError:
            return False
        return True
