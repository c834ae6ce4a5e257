"""The sidecar as process 1 of a container, before it is up."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from testbed.processes import wait_until

_SLOW = """
import pathlib, time
pathlib.Path({mark!r}).touch()
time.sleep(300)
"""


def test_a_signal_ends_process_1_while_it_still_imports(tmp_path: Path) -> None:
    mark = tmp_path / "importing"
    (tmp_path / "uvloop.py").write_text(_SLOW.format(mark=str(mark)))
    command = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable]
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    with subprocess.Popen(
        [*command, "-m", "namedqueue_sidecar", "--namespace=shop"],
        env={**os.environ, "PYTHONPATH": paths},
    ) as unshare:
        try:
            wait_until(mark.exists, what="it imports")
            children = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text()
            os.kill(int(children), signal.SIGTERM)
            assert unshare.wait(timeout=30) == 0
        finally:
            unshare.kill()
