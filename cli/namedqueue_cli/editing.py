"""A payload in the person's editor, as `kubectl edit` does it; what he wrote is never lost."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click


def edited_payload(letter: Mapping[str, Any]) -> bytes | None:
    """Open a dead letter's payload in $EDITOR and return what was made of it; None if nothing.

    JSON is laid out for reading, and sent as it was left, without the last line break.
    """
    text, suffix = _readable(letter["payloadSnapshot"])
    written = click.edit(f"{text}\n", extension=suffix)
    if written is None or written.rstrip("\n") == text.rstrip("\n"):
        return None
    payload = written.rstrip("\n").encode()
    if suffix == ".json":
        try:
            json.loads(payload)
        except ValueError as error:
            refusal = click.ClickException(f"this is no JSON any more: {error}")
            raise with_draft(refusal, payload, "the same command") from None
    return payload


def with_draft(refused: click.ClickException, payload: bytes, command: str) -> click.ClickException:
    """Return a refusal that also says where the person's work is kept."""
    with tempfile.NamedTemporaryFile(prefix="nq-edit-", delete=False) as draft:
        draft.write(payload)
    where = Path(draft.name)
    return click.ClickException(
        f"{refused.message}\nWhat you wrote is kept in {where}; "
        f"mend it and send it by {command} --file {where}"
    )


def _readable(snapshot: object) -> tuple[str, str]:
    """Return a payload as text for an editor, and the ending of its file."""
    if isinstance(snapshot, str):
        return snapshot, ".txt"
    if isinstance(snapshot, dict) and snapshot.keys() == {"base64"}:
        raise click.ClickException(
            "this payload is not text; write the new one into a file and send it with --file"
        )
    return json.dumps(snapshot, indent=2, ensure_ascii=False), ".json"
