"""The programs of a cluster, built by Go from the module proxy at pinned versions.

A program is built once per version and lies in the cache afterwards. Two callers never build the
same thing at the same time, and a program that is there is whole: it is renamed into place.
The versions of Kubernetes and CoreDNS stand in `hack/kubernetes/go.mod` and
`hack/coredns/go.mod`, next to the checksums of all they consist of.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.debian import only_one
from testbed.paths import cache_dir
from testbed.processes import TestbedError
from testbed.progress import step

HACK = Path(__file__).resolve().parents[2]
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kubectl")
WHOLE_CLUSTER = (
    *CONTROL_PLANE,
    "kubelet",
    "kube-scheduler",
    "kube-proxy",
    "coredns",
    "helm",
)
_KUBERNETES = frozenset(WHOLE_CLUSTER) - {"coredns", "helm"}
_INSTALLABLE = {
    "helm": ("helm.sh/helm/v3/cmd/helm", "v3.22.0"),
    "kind": ("sigs.k8s.io/kind", "v0.33.0"),
}


@dataclass(frozen=True)
class Program:
    """One program: where Go finds it, and which folder of the cache it belongs to."""

    name: str
    package: str
    version: str
    folder: str
    module: Path | None
    """The module of ours that pins it; None if Go installs it by its version alone."""

    @property
    def path(self) -> Path:
        return cache_dir("bin", self.folder) / self.name


def program(name: str) -> Program:
    """Describe a program by its name."""
    if name in _INSTALLABLE:
        package, version = _INSTALLABLE[name]
        return Program(name, package, version, f"{name}-{version}", None)
    if name in _KUBERNETES:
        return _pinned(name, f"k8s.io/kubernetes/cmd/{name}", "k8s.io/kubernetes", "kubernetes")
    return _pinned(name, ".", "github.com/coredns/coredns", "coredns")


def kubernetes_version() -> str:
    return program("kube-apiserver").version


def path(name: str) -> Path:
    """Return where a program is, building it if it is not there yet."""
    ensure([name])
    return program(name).path


def missing(names: Sequence[str]) -> list[Program]:
    """Return those that still have to be built."""
    return [each for each in map(program, names) if not each.path.exists()]


def ensure(names: Sequence[str]) -> None:
    """Build what is missing, in the given order."""
    if not missing(names):
        return
    if shutil.which("go") is None:
        raise TestbedError(
            f"{missing(names)[0].name} has to be built and there is no `go` on PATH: "
            "install Go 1.21 or newer, or set KUBECONFIG to a cluster you may test on"
        )
    with only_one("go-build"):
        wanted = missing(names)
        for number, each in enumerate(wanted, start=1):
            with step(f"building {each.name} {each.version} ({number} of {len(wanted)}, once)"):
                _build(each)


def _build(each: Program) -> None:
    unfinished = each.path.with_name(f"{each.name}.unfinished")
    log = cache_dir("logs") / f"build-{each.name}.log"
    environment = {**os.environ, "CGO_ENABLED": "0"}
    with log.open("wb") as output:
        done = subprocess.run(
            _command(each, unfinished, environment),
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=each.module or unfinished.parent,
            env=environment,
        )
    if done.returncode != 0:
        last_words = log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise TestbedError(f"building {each.name} failed: {last_words} (whole log: {log})")
    if each.module is None:
        (unfinished.parent / "install" / each.name).rename(unfinished)
    unfinished.rename(each.path)


def _command(each: Program, target: Path, environment: dict[str, str]) -> list[str]:
    flags = ["-trimpath", "-ldflags", _link_flags(each)]
    if each.module is not None:
        return ["go", "build", *flags, "-o", str(target), each.package]
    environment["GOBIN"] = str(target.parent / "install")
    return ["go", "install", *flags, f"{each.package}@{each.version}"]


def _link_flags(each: Program) -> str:
    """Leave out debug symbols, and write the version in, which Go knows only of main modules."""
    stamps: list[str] = []
    major, minor, _ = each.version.removeprefix("v").split(".")
    if each.name in _KUBERNETES:
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            stamps += [
                f"{package}.gitVersion={each.version}",
                f"{package}.gitMajor={major}",
                f"{package}.gitMinor={minor}",
                f"{package}.gitTreeState=clean",
            ]
    if each.name == "helm":
        stamps.append(f"helm.sh/helm/v3/internal/version.version={each.version}")
    return " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in stamps)])


def _pinned(name: str, package: str, requirement: str, module_name: str) -> Program:
    module = HACK / module_name
    requirements = (module / "go.mod").read_text()
    found = re.search(rf"^require {re.escape(requirement)} (\S+)$", requirements, re.MULTILINE)
    if found is None:
        raise TestbedError(f"{module / 'go.mod'} has no line `require {requirement} VERSION`")
    sources = b"".join(file.read_bytes() for file in sorted(module.glob("*.go")))
    digest = hashlib.sha256(requirements.encode() + sources).hexdigest()[:8]
    version = found.group(1)
    return Program(name, package, version, f"{module_name}-{version}-{digest}", module)
