"""Reading manifests from files, folders and standard input, with the line of everything in them.

YAML is read as Kubernetes reads it: several documents in a file, a `List` for its items, times as
text. A key written twice is refused, because the API server would refuse it too.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json")

FieldPath: TypeAlias = tuple[str | int, ...]

_FastLoader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_VALUES = 100_000


class Unreadable(Exception):  # noqa: N818  # «raise Unreadable» says it
    """A file that cannot be read at all; the sentence names it."""


class _TooMuch(Exception):  # noqa: N818  # never leaves this module
    """A document that nobody wrote by hand."""


@dataclass(frozen=True)
class Broken:
    """A place where a file is no YAML, or not the YAML that Kubernetes takes."""

    file: str
    line: int
    sentence: str


@dataclass(frozen=True)
class Document:
    """One manifest and where it stands."""

    file: str
    content: Any
    _node: yaml.Node = field(repr=False)

    @property
    def line(self) -> int:
        return _line(self._node)

    def line_of(self, path: FieldPath) -> int:
        """Return the line of a field, or of the nearest one around it that is there."""
        node, line = self._node, self.line
        for part in path:
            found = _below(node, part)
            if found is None:
                break
            key, node = found
            line = _line(key)
        return line

    def items(self) -> Iterator["Document"]:
        """Return the manifests in a `List`, or this one alone."""
        whole = self.content
        listed = isinstance(whole, dict) and whole.get("kind") == "List"
        found = _below(self._node, "items") if listed else None
        if found is None or not isinstance(whole["items"], list):
            yield self
            return
        for content, node in zip(whole["items"], found[1].value, strict=True):
            yield Document(self.file, content, node)


def documents(paths: Iterable[str]) -> Iterator[Document | Broken]:
    """Yield each manifest of the files and folders; raise `Unreadable` for what is not there."""
    for path in paths:
        for name, text in _texts(path):
            yield from _parsed(name, text)


def files_in(path: str) -> list[Path]:
    """Return the manifests of a folder in order, or the one file."""
    if not Path(path).is_dir():
        return [Path(path)]
    found = (it for it in Path(path).rglob("*") if it.suffix in SUFFIXES and it.is_file())
    files = sorted(found)
    if not files:
        raise Unreadable(f"{path}: the folder holds no {', '.join(SUFFIXES)} file")
    return files


def _texts(path: str) -> Iterator[tuple[str, str]]:
    if path == STDIN:
        yield "<stdin>", _decoded("<stdin>", sys.stdin.buffer.read())
        return
    for file in files_in(path):
        try:
            content = file.read_bytes()
        except OSError as error:
            raise Unreadable(f"{file}: cannot be read: {error.strerror}") from None
        yield str(file), _decoded(str(file), content)


def _decoded(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name}: is not UTF-8 text (byte {error.start})") from None


class _Loader(_FastLoader):  # type: ignore[misc]  # libyaml's loader where there is one
    """Leaves times as text, as Kubernetes does."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # the class attribute that PyYAML asks for
        first: [(tag, regexp) for tag, regexp in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _parsed(file: str, text: str) -> Iterator[Document | Broken]:
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            yield from _document(file, loader, node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        yield Broken(file, line, f"is not YAML: {error.problem or error.context}")
    except yaml.YAMLError as error:
        yield Broken(file, 1, f"is not YAML: {' '.join(str(error).split())}")
    except (RecursionError, _TooMuch):
        yield Broken(file, 1, f"is nested too deeply or holds more than {_MOST_VALUES} values")


def _document(file: str, loader: Any, node: yaml.Node) -> Iterator[Document | Broken]:
    twice = next(_written_twice(node), None)
    if twice is not None:
        path, line = twice
        yield Broken(file, line, f"{path} is written twice; keep one of them")
        return
    content = loader.construct_document(node)
    if content is not None:
        yield from Document(file, content, node).items()


def _written_twice(whole: yaml.Node) -> Iterator[tuple[str, int]]:
    """Yield keys that stand twice in one mapping, with the line of the second.

    Aliases are followed as if they were written out, so this is also where a small file that
    unfolds into a huge or endless one is found.
    """
    waiting = [(whole, "")]
    met = 0
    while waiting:
        node, path = waiting.pop()
        met += 1
        if met > _MOST_VALUES:
            raise _TooMuch
        if isinstance(node, yaml.SequenceNode):
            waiting += [(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                name = str(key.value)
                below = f"{path}.{name}" if path else name
                if name in seen:
                    yield below, _line(key)
                seen.add(name)
                waiting.append((value, below))


def _below(node: yaml.Node, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Return where a field begins and what it holds."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
