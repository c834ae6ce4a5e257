"""`python -m namedqueue_sidecar.drain`: what the preStop of the sidecar's container runs.

The kubelet's own HTTP hook calls the pod's address, and the drain is on loopback only: whoever can
reach the pod must not be able to stop its work. So the hook is a command. It ends when nothing is
in flight any more, or by the kubelet when the pod's grace period is over. It imports nothing but
the standard library, because it starts on a busy machine in seconds that the drain then lacks.
"""

import argparse
import http.client
import sys


def main() -> int:
    """Drain the sidecar on this pod's loopback; return when that is done."""
    parser = argparse.ArgumentParser(prog="python -m namedqueue_sidecar.drain")
    parser.add_argument("--port", type=int, default=3550, help="the API's port (%(default)s)")
    connection = http.client.HTTPConnection("127.0.0.1", parser.parse_args().port)
    try:
        connection.request("POST", "/drain")
        status = connection.getresponse().status
    except OSError as error:
        print(f"nothing to drain: {error}", file=sys.stderr)  # noqa: T201
        return 1
    finally:
        connection.close()
    return 0 if status == http.client.OK else 1


if __name__ == "__main__":
    sys.exit(main())
