"""From files to models: every manifest checked, with what is wrong and where.

`nq validate` reports it all, `nq topology` and `nq run` go on with what is valid.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

import click

from namedqueue.api import GROUP
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.reading import KINDS, Invalid, dotted, read
from namedqueue.api.redrive import QueueRedrive
from namedqueue_cli.documents import Broken, Document, Unreadable, documents, files_in

Fingerprint: TypeAlias = tuple[tuple[str, int, int], ...]


class Verdict(StrEnum):
    """What was found out about a manifest."""

    VALID = "valid"
    INVALID = "invalid"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    file: str
    line: int
    verdict: Verdict
    sentence: str
    field: str = ""

    def __str__(self) -> str:
        place = self.file if self.verdict is Verdict.VALID else f"{self.file}:{self.line}"
        return f"{place}: {self.sentence}"


@dataclass(frozen=True)
class Checked:
    """A manifest that was looked at: what was found, and the model if it is valid."""

    findings: tuple[Finding, ...]
    model: NamedQueue | QueueRedrive | None = None


def load_queues(paths: Iterable[str | Path]) -> list[NamedQueue]:
    """Return the NamedQueues of the files, or end the command with all that is wrong in them.

    Exits 1 for an invalid manifest or when there is no NamedQueue at all, 2 for what cannot be
    read.
    """
    files = [str(path) for path in paths]
    try:
        checked = list(check(files))
    except Unreadable as error:
        raise click.UsageError(str(error)) from None
    findings = [finding for each in checked for finding in each.findings]
    wrong = [str(finding) for finding in findings if finding.verdict is Verdict.INVALID]
    queues = [each.model for each in checked if isinstance(each.model, NamedQueue)]
    if not wrong and not queues:
        wrong = [f"{', '.join(files)}: there is no NamedQueue in here; check the path"]
    if wrong:
        click.echo("\n".join(wrong), err=True)
        raise click.exceptions.Exit(1)
    return queues


def fingerprint(paths: Iterable[str | Path]) -> Fingerprint:
    """Return a value that differs when any of the files was written, added or removed.

    What cannot be read has none; reading it says why.
    """
    try:
        stats = [(str(file), file.stat()) for path in paths for file in files_in(str(path))]
    except (OSError, Unreadable):
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


def check(files: Iterable[str]) -> Iterator[Checked]:
    """Look at every manifest of the files; the same object twice is a problem of the second."""
    places: dict[str, str] = {}
    for document in documents(files):
        if isinstance(document, Broken):
            yield Checked((_invalid(document.file, document.line, document.sentence),))
            continue
        checked = _checked(document)
        if checked.model is None:
            yield checked
            continue
        name, here = _name(checked.model), f"{document.file}:{document.line}"
        if name in places:
            sentence = f"{name} is already defined at {places[name]}; remove one of them"
            yield Checked((_invalid(document.file, document.line, sentence, "metadata.name"),))
            continue
        places[name] = here
        yield checked


def _checked(document: Document) -> Checked:
    if _is_foreign(document.content):
        sentence = f"skipped, {document.content.get('kind')} is not ours to check"
        return Checked((Finding(document.file, document.line, Verdict.SKIPPED, sentence),))
    try:
        model = read(document.content)
    except Invalid as invalid:
        problems = (
            _invalid(document.file, document.line_of(it.path), it.sentence, dotted(it.path))
            for it in invalid.problems
        )
        return Checked(tuple(problems))
    sentence = f"{_name(model)} is valid"
    return Checked((Finding(document.file, document.line, Verdict.VALID, sentence),), model)


def _is_foreign(content: Any) -> bool:
    """Tell whether a document is surely of another API; a doubtful one is checked."""
    if not isinstance(content, dict) or str(content.get("kind")) in KINDS:
        return False
    version = content.get("apiVersion")
    return isinstance(version, str) and version.partition("/")[0] != GROUP


def _invalid(file: str, line: int, sentence: str, field: str = "") -> Finding:
    return Finding(file, line, Verdict.INVALID, sentence, field)


def _name(model: NamedQueue | QueueRedrive) -> str:
    return f"{model.kind} {model.metadata.namespace}/{model.metadata.name}"
