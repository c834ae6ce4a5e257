"""Reading docker-archives: what an image is called, how it is configured and what it contains.

The archive is what gets loaded into a cluster, so what is read here is what will run there.
"""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from testbed.processes import TestbedError


def names(archive: Path) -> list[str]:
    """Return the names that the image goes by in a pod's specification."""
    return [str(name) for name in _manifest(archive)["RepoTags"]]


def config(archive: Path) -> dict[str, Any]:
    """Return the image's configuration with its history, as the runtime reads it."""
    with tarfile.open(archive) as outer:
        read: dict[str, Any] = json.load(_content(outer, _manifest(archive)["Config"]))
    return read


def files(archive: Path) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Go through everything in every layer, the lowest first: the entry and what is in it."""
    with tarfile.open(archive) as outer:
        for layer in _manifest(archive)["Layers"]:
            with tarfile.open(fileobj=_content(outer, layer)) as inner:
                for entry in inner:
                    held = inner.extractfile(entry) if entry.isfile() else None
                    yield entry, b"" if held is None else held.read()


def unpacked_size(archive: Path) -> int:
    """Return how many bytes the layers' files take on a node."""
    with tarfile.open(archive) as outer:
        total = 0
        for layer in _manifest(archive)["Layers"]:
            with tarfile.open(fileobj=_content(outer, layer)) as inner:
                total += sum(entry.size for entry in inner)
        return total


def unpack(archive: Path, root: Path) -> None:
    """Lay the image's files out in a folder, with their owners. Needs to be root."""
    with tarfile.open(archive) as outer:
        for layer in _manifest(archive)["Layers"]:
            with tarfile.open(fileobj=_content(outer, layer)) as inner:
                for entry in inner:
                    _place(inner, entry, root)


def _place(layer: tarfile.TarFile, entry: tarfile.TarInfo, root: Path) -> None:
    path = root / entry.name
    if path.name.startswith(".wh."):
        raise TestbedError(f"a layer deletes {path.name}; images here are only ever added to")
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir() and not entry.isdir():
        shutil.rmtree(path)
    layer.extract(entry, root, filter="fully_trusted")


def _manifest(archive: Path) -> dict[str, Any]:
    with tarfile.open(archive) as outer:
        manifests: list[dict[str, Any]] = json.load(_content(outer, "manifest.json"))
    if len(manifests) != 1:
        raise TestbedError(f"{archive} holds {len(manifests)} images, not one")
    return manifests[0]


def _content(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    content = archive.extractfile(name)
    if content is None:
        raise TestbedError(f"{name} in {archive.name!r} is not a file")
    return content
