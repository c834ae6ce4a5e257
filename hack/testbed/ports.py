"""Free TCP ports on loopback."""

import socket


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nothing listens on right now."""
    return free_ports(1, host)[0]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return `count` different free ports; all are held until the last one is known."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind((host, 0))
        return [int(sock.getsockname()[1]) for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether something listens there."""
    with socket.socket() as sock:
        sock.settimeout(1)
        return sock.connect_ex((host, port)) == 0
