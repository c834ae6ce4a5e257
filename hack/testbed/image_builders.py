"""What turns the Dockerfile into an archive: Docker where it can pull, buildah where it cannot.

buildah stands on a Debian made by debootstrap, keeps its storage apart from the person's own, and
runs in namespaces of its own, so that an interrupted build leaves no mount and no process behind.

The machine's index, proxy and certificates reach the build only as secrets, which end with the
step that used them: an image never tells where it was built.
"""

import os
import shlex
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from testbed import kind
from testbed.debian import ensure_packages, make_root, only_one
from testbed.paths import cache_dir
from testbed.processes import TestbedError
from testbed.progress import step

_SUITE = "trixie"
_PYTHON = ("ca-certificates", "python3", "python3-venv")
_MACHINE_FILES = (
    "etc/hostname",
    "etc/resolv.conf",
    "var/cache/apt/*",
    "var/lib/apt/lists/*",
    "var/log/*",
)
_LAYERS_KEPT = 600

_SETTINGS = (
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT"),
    *("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_STRATEGY"),
    *("UV_INSECURE_HOST", "UV_HTTP_TIMEOUT"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
)
_PIP_CONFIGS = ("~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf")


@dataclass(frozen=True)
class Order:
    """What to build: a stage of the Dockerfile, under this name, into this archive."""

    target: str
    name: str
    labels: Mapping[str, str]
    context: Path
    archive: Path
    log: Path


class Builder(Protocol):
    """One way to build an image."""

    @property
    def identity(self) -> str:
        """Say what the images stand on: another identity makes other images."""

    def build(self, order: Order) -> None: ...


class Docker:
    """Builds on the Dockerfile's own base, which Docker pulls."""

    identity = "docker"

    def build(self, order: Order) -> None:
        with _secrets() as secrets:
            environment = {**os.environ, "DOCKER_BUILDKIT": "1"}
            command = ["docker", "build", *_options(order, secrets), str(order.context)]
            _logged(command, order.log, env=environment)
        _logged(["docker", "save", "--output", order.archive, order.name], order.log)


class Buildah:
    """Builds on a Debian made here; nothing is pulled."""

    base = f"localhost/namedqueue/base:{_SUITE}"
    identity = f"buildah on {_SUITE} with {' '.join(_PYTHON)}"

    def build(self, order: Order) -> None:
        ensure_packages("buildah")
        root = make_root(f"python-{_SUITE}", _SUITE, _PYTHON)
        with only_one("buildah"), tempfile.TemporaryDirectory(prefix="namedqueue-") as scratch:
            self._tidy(scratch, order.log)
            if not self._has_base(scratch):
                self._make_base(root, Path(scratch), order.log)
            here = ["--pull-never", "--network=host", "--isolation=chroot", "--layers"]
            with _secrets() as secrets:
                options = [*here, f"--build-arg=BASE={self.base}", *_options(order, secrets)]
                self._run(scratch, order.log, "build", *options, order.context)
            target = f"docker-archive:{order.archive}:{order.name}"
            self._run(scratch, order.log, "push", "--quiet", order.name, target)

    def _make_base(self, root: Path, scratch: Path, log: Path) -> None:
        dockerfile, ignored = scratch / "Dockerfile", scratch / "ignored"
        dockerfile.write_text("FROM scratch\nCOPY . /\n")
        ignored.write_text("\n".join(_MACHINE_FILES))
        options = [f"--file={dockerfile}", f"--ignorefile={ignored}", f"--tag={self.base}"]
        with step("making the base image"):
            self._run(str(scratch), log, "build", *options, root)

    def _has_base(self, scratch: str) -> bool:
        known = self._command(scratch, "inspect", "--type=image", self.base)
        return subprocess.run(known, check=False, capture_output=True).returncode == 0

    def _tidy(self, scratch: str, log: Path) -> None:
        """Forget what an interrupted build left, and all layers once there are too many."""
        self._run(scratch, log, "rm", "--all")
        every = self._command(scratch, "images", "--all", "--quiet", "--no-trunc")
        listed = subprocess.run(every, check=True, capture_output=True, text=True).stdout.split()
        if len(set(listed)) > _LAYERS_KEPT:
            self._run(scratch, log, "rmi", "--all", "--force")

    def _run(self, scratch: str, log: Path, *arguments: str | Path) -> None:
        _logged(self._command(scratch, *arguments), log)

    def _command(self, scratch: str, *arguments: str | Path) -> list[str | Path]:
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        storage = [f"--root={cache_dir('buildah')}", f"--runroot={scratch}/run"]
        return [*own, "buildah", *storage, "--storage-driver=overlay", *arguments]


def choose() -> Builder:
    """Return Docker where it can pull and run images, else buildah."""
    return Docker() if kind.usable() else Buildah()


def _options(order: Order, secrets: Mapping[str, Path]) -> list[str]:
    return [
        f"--file={order.context / 'Dockerfile'}",
        f"--target={order.target}",
        f"--tag={order.name}",
        *(f"--label={name}={value}" for name, value in order.labels.items()),
        *(f"--secret=id={name},src={path}" for name, path in secrets.items()),
    ]


@contextmanager
def _secrets() -> Iterator[dict[str, Path]]:
    """Give the files with which an installer works on this machine; gone afterwards."""
    settings = {name: os.environ[name] for name in _SETTINGS if os.environ.get(name)}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in settings.items()]
    certificates = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    configs = (os.environ.get("PIP_CONFIG_FILE", ""), *_PIP_CONFIGS)
    with tempfile.NamedTemporaryFile("w", prefix="namedqueue-") as installer:
        installer.writelines(lines)
        installer.flush()
        found = {"installer": Path(installer.name)}
        if certificates and Path(certificates).is_file():
            found["certificates"] = Path(certificates)
        for config in (Path(name).expanduser() for name in configs if name):
            if config.is_file():
                found["pip.conf"] = config
                break
        yield found


def _logged(
    command: Sequence[str | Path], log: Path, *, env: Mapping[str, str] | None = None
) -> None:
    """Run a command with its output at the end of the log; on failure show the log's end."""
    with log.open("ab") as output:
        done = subprocess.run(
            [str(part) for part in command],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
        )
    if done.returncode != 0:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise TestbedError(f"building failed; the end of {log}:\n{end}")
