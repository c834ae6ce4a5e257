"""`hack/images`: the project's container images, as archives that a cluster can load.

    hack/images build                    build what is not built yet of the four
    hack/images build sidecar --tag x    only this one, as localhost/namedqueue/sidecar:x
    hack/images list                     say what there is, and whether it is of this tree
    hack/images archive sidecar          print the archive's path, building it if need be
    hack/images archive sidecar FILE     copy the archive to FILE

An archive is kept under the content that went into it, so an unchanged tree builds nothing. In a
pod: `image: localhost/namedqueue/sidecar:dev` with `imagePullPolicy: IfNotPresent`.
"""

import argparse
import hashlib
import json
import shutil
import signal
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from testbed import image_archives, image_builders
from testbed.debian import only_one
from testbed.image_builders import Builder, Order
from testbed.paths import cache_dir
from testbed.processes import TestbedError
from testbed.progress import step

TARGETS = ("python", "sidecar", "operator", "spark")
TAG = "dev"
_REPOSITORY = Path(__file__).parents[2]
_INPUTS = (
    *("Dockerfile", ".dockerignore", "pyproject.toml", "requirements.lock", "README.md", "LICENSE"),
    *("hack/container", "crds", "operator", "sidecar", "spark", "cli"),
)
_INPUTS_OF_PYTHON = ("Dockerfile", ".dockerignore", "pyproject.toml", "hack/container")
_KEPT = 3
_MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Image:
    """A built image: the name for a pod's specification, its archive, its bytes on a node."""

    target: str
    name: str
    archive: Path
    size: int

    def __str__(self) -> str:
        return f"{self.name}  {self.size / _MEGABYTE:.0f} MB"


def build(target: str, *, tag: str = TAG) -> Image:
    """Return the image of this tree, built now unless it was before."""
    if target not in TARGETS:
        raise TestbedError(f"there is no image {target!r}, only: {', '.join(TARGETS)}")
    builder = image_builders.choose()
    with only_one(f"image-{target}"), _snapshot(target) as tree:
        archive = _archive(target, tag, builder, tree)
        image = _find(archive)
        if image is None:
            image = _build(target, f"localhost/namedqueue/{target}:{tag}", tree, archive, builder)
        archive.touch()
        for old in _newest_first(target)[_KEPT:]:
            old.unlink(missing_ok=True)
            _facts(old).unlink(missing_ok=True)
    return image


def _build(target: str, name: str, tree: Path, archive: Path, builder: Builder) -> Image:
    log = cache_dir("logs") / f"image-{target}.log"
    log.unlink(missing_ok=True)
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    labels = {"org.opencontainers.image.version": str(project["version"])}
    with step(f"building {name} (log: {log})"):
        builder.build(Order(target, name, labels, tree, unfinished, log))
    size = image_archives.unpacked_size(unfinished)
    _facts(archive).write_text(json.dumps({"target": target, "name": name, "size": size}))
    unfinished.rename(archive)
    return Image(target, name, archive, size)


def _find(archive: Path) -> Image | None:
    if not archive.exists():
        return None
    facts = json.loads(_facts(archive).read_text())
    return Image(facts["target"], facts["name"], archive, facts["size"])


def _archive(target: str, tag: str, builder: Builder, tree: Path) -> Path:
    digest = hashlib.sha256(f"{target}\0{tag}\0{builder.identity}".encode())
    for path in sorted(path for path in tree.rglob("*") if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        mode = path.stat().st_mode & 0o111
        digest.update(f"{path.relative_to(tree)}\0{mode}\0{content}\0".encode())
    return cache_dir("built-images") / f"{target}-{digest.hexdigest()[:16]}.tar"


@contextmanager
def _snapshot(target: str) -> Iterator[Path]:
    """Copy what goes into an image, so that an edit during the build cannot get under its key."""
    with tempfile.TemporaryDirectory(prefix="namedqueue-") as folder:
        tree = Path(folder)
        for name in _INPUTS_OF_PYTHON if target == "python" else _INPUTS:
            source, copy = _REPOSITORY / name, tree / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, copy)
        yield tree


def _newest_first(target: str) -> list[Path]:
    archives = cache_dir("built-images").glob(f"{target}-*.tar")
    return sorted(archives, key=lambda path: path.stat().st_mtime, reverse=True)


def _facts(archive: Path) -> Path:
    return archive.with_suffix(".json")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        options.run(options)
    except TestbedError as error:
        print(f"hack/images: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("hack/images: interrupted", file=sys.stderr)
        return 130
    return 0


def _run_build(options: argparse.Namespace) -> None:
    for target in options.targets or TARGETS:
        print(build(target, tag=options.tag), flush=True)


def _run_list(_options: argparse.Namespace) -> None:
    builder = image_builders.choose()
    for target in TARGETS:
        with _snapshot(target) as tree:
            for archive in _newest_first(target):
                image = _find(archive)
                if image is not None:
                    tag = image.name.rpartition(":")[2]
                    current = archive == _archive(target, tag, builder, tree)
                    print(f"{image}  {'of this tree' if current else 'older'}  {archive}")


def _run_archive(options: argparse.Namespace) -> None:
    image = build(options.target, tag=options.tag)
    if options.file is None:
        print(image.archive)
    else:
        shutil.copyfile(image.archive, options.file)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hack/images", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="build|list|archive")
    making = verbs.add_parser("build", help="build what this tree does not have yet")
    making.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    making.set_defaults(run=_run_build)
    archive = verbs.add_parser("archive", help="print an archive's path, or copy it to FILE")
    archive.add_argument("target", choices=TARGETS)
    archive.add_argument("file", nargs="?", type=Path, metavar="FILE")
    archive.set_defaults(run=_run_archive)
    for verb in (making, archive):
        verb.add_argument("--tag", default=TAG, help="the image's tag (default: %(default)s)")
    verbs.add_parser("list", help="say what is built").set_defaults(run=_run_list)
    return parser


if __name__ == "__main__":
    sys.exit(main())
