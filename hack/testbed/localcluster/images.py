"""The few images that a cluster and its own tests need, made without pulling or a builder.

Each is one layer written as a docker-archive into the cache, under a name that no registry has.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path

from testbed.debian import ensure_packages, only_one
from testbed.localcluster import binaries
from testbed.paths import cache_dir
from testbed.processes import run

PAUSE = "testbed.namedqueue.io/pause:1"
BUSYBOX = "testbed.namedqueue.io/busybox:1"
COREDNS_NAME = "testbed.namedqueue.io/coredns"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def coredns_reference() -> str:
    return f"{COREDNS_NAME}:{binaries.program('coredns').folder.removeprefix('coredns-')}"


def pause() -> Path:
    """Return the archive of the image that holds a pod's namespaces."""
    archive = _archive(PAUSE)
    with only_one("image-pause"):
        if not archive.exists():
            ensure_packages("gcc", "libc6-dev")
            program = archive.with_suffix(".bin")
            source = Path(__file__).with_name("pause.c")
            run(["gcc", "-Os", "-static", "-s", "-o", program, source], what="compiling pause.c")
            write(archive, PAUSE, {"pause": program.read_bytes()}, entrypoint=["/pause"])
    return archive


def coredns() -> Path:
    """Return the archive of CoreDNS."""
    archive = _archive(coredns_reference())
    with only_one("image-coredns"):
        if not archive.exists():
            program = binaries.path("coredns").read_bytes()
            write(archive, coredns_reference(), {"coredns": program}, entrypoint=["/coredns"])
    return archive


def busybox() -> Path:
    """Return the archive of a tiny image with a shell, wget, nc and httpd, for cluster tests."""
    archive = _archive(BUSYBOX)
    with only_one("image-busybox"):
        if not archive.exists():
            ensure_packages("busybox-static")
            program = Path("/bin/busybox")
            applets = run([program, "--list"], what="listing busybox applets").split()
            links = {f"bin/{name}": "busybox" for name in applets if name != "busybox"}
            files = {"bin/busybox": program.read_bytes()}
            write(archive, BUSYBOX, files, links=links, entrypoint=["/bin/sh"])
    return archive


def write(
    archive: Path,
    reference: str,
    programs: Mapping[str, bytes],
    *,
    links: Mapping[str, str] | None = None,
    entrypoint: list[str],
) -> None:
    """Write a docker-archive of one layer with these executables and links, run as nobody."""
    layer = _layer(programs, links or {})
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "Entrypoint": entrypoint,
                "Env": ["PATH=/bin"],
                "User": "65534:65534",
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
        }
    ).encode()
    config_name = f"{_digest(config)}.json"
    manifest = [{"Config": config_name, "RepoTags": [reference], "Layers": ["layer.tar"]}]
    unfinished = archive.with_suffix(".unfinished")
    with tarfile.open(unfinished, "w") as tar:
        _add(tar, "layer.tar", layer)
        _add(tar, config_name, config)
        _add(tar, "manifest.json", json.dumps(manifest).encode())
    unfinished.rename(archive)


def _layer(programs: Mapping[str, bytes], links: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        folders = {str(Path(name).parent) for name in programs} - {"."}
        for folder, mode in (*((each, 0o755) for each in sorted(folders)), ("tmp", 0o1777)):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            tar.addfile(entry)
        for name, content in programs.items():
            _add(tar, name, content, mode=0o755)
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _archive(reference: str) -> Path:
    return cache_dir("images") / (reference.rpartition("/")[2].replace(":", "-") + ".tar")
