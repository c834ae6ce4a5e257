"""`python -m namedqueue_sidecar`: the data plane beside an app in a pod. See `running`.

In a container this is process 1, to which a signal without a handler does nothing at all. Until
everything is imported, which takes seconds on a busy machine, nothing is in flight either, so a
SIGTERM ends it where it stands.
"""

import os
import signal
import sys


def main() -> int:
    """Run until told to stop; `redrive` as the first word sends dead letters back instead."""
    if sys.argv[1:2] == ["redrive"]:
        from namedqueue_sidecar.redriving import job  # noqa: PLC0415 - only where it is asked for

        return job.main(sys.argv[2:])
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    from namedqueue_sidecar import running  # noqa: PLC0415 - the handler comes first

    return running.main()


if __name__ == "__main__":
    sys.exit(main())
