"""Where files lie: a path on this machine, or a URI of any file system that Arrow knows."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def place(path: str) -> "tuple[FileSystem, str]":
    """Return a file system and the path in it."""
    from pyarrow import fs  # noqa: PLC0415  # only who writes files needs it

    if "://" not in path:
        return fs.LocalFileSystem(), path.rstrip("/")
    files, root = fs.FileSystem.from_uri(path)
    return files, root.rstrip("/")


def write(path: str, content: bytes) -> None:
    """Write a file, and the folders above it."""
    files, name = place(path)
    parent, slash, _ = name.rpartition("/")
    if slash:
        files.create_dir(parent or "/", recursive=True)
    with files.open_output_stream(name) as stream:
        stream.write(content)
