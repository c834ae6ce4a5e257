"""Debian packages: installed where missing, and small Debian roots made by debootstrap."""

import fcntl
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from testbed.paths import cache_dir
from testbed.processes import TestbedError, run
from testbed.progress import step


def ensure_packages(*packages: str) -> None:
    """Install the packages that are not there yet. Needs root only if something is missing."""
    if all(map(_installed, packages)):
        return
    with only_one("apt"), step(f"installing {', '.join(packages)}"):
        missing = [name for name in packages if not _installed(name)]
        if not missing:
            return  # somebody else has just done it
        if shutil.which("apt-get") is None:
            raise TestbedError(f"no apt-get here; install by hand: {' '.join(missing)}")
        environment = {"DEBIAN_FRONTEND": "noninteractive", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        run(["apt-get", "update", "-qq"], what="apt-get update", env=environment)
        # A package must not start its own server: the test bed starts what it needs itself.
        policy = Path("/usr/sbin/policy-rc.d")
        ours = not policy.exists()
        if ours:
            policy.write_text("#!/bin/sh\nexit 101\n")
            policy.chmod(0o755)
        try:
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
            run(install, what=f"apt-get install {' '.join(missing)}", env=environment)
        finally:
            if ours:
                policy.unlink()


def make_root(name: str, suite: str, include: Sequence[str]) -> Path:
    """Make, once, a minimal Debian of `suite` with these packages; return its folder."""
    ensure_packages("debootstrap")
    root = cache_dir("roots") / name
    with only_one(f"root-{name}"):
        if root.exists():
            return root
        unfinished = root.with_name(f"{name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        with step(f"making a Debian {suite} with {', '.join(include)}"):
            run(
                # In a mount namespace of its own, so that no mount of it outlives an interruption.
                [
                    "unshare",
                    "--mount",
                    "debootstrap",
                    "--variant=minbase",
                    f"--include={','.join(include)}",
                    suite,
                    unfinished,
                    mirror(),
                    "/usr/share/debootstrap/scripts/sid",
                ],
                what=f"debootstrap of {suite} (log: {unfinished}/debootstrap/debootstrap.log)",
            )
            unfinished.rename(root)
    return root


def mirror() -> str:
    """Return the Debian mirror that this machine's apt already uses."""
    targets = run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        what="reading apt's mirrors",
    ).split()
    main = [uri for uri in targets if "security" not in urlsplit(uri).path + urlsplit(uri).netloc]
    if not main:
        raise TestbedError("apt has no Debian mirror configured; run apt-get update first")
    return main[0]


@contextmanager
def only_one(what: str) -> Iterator[None]:
    """Let one process at a time do this, on the whole machine."""
    with (cache_dir("locks") / f"{what}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with step(f"waiting for another process to finish with {what}"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _installed(package: str) -> bool:
    query = subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status}", package],
        check=False,
        capture_output=True,
        text=True,
    )
    return query.returncode == 0 and query.stdout == "installed"
