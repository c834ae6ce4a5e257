"""What a user may ask of the source, checked on the driver before anything runs.

Option names are case-insensitive, as everywhere in Spark; a name that is none of ours is refused,
for a typo must not become a default.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote, urlsplit

ENDPOINT: Final = "http://127.0.0.1:3550"
"""The sidecar in the executor's own pod."""

MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 16 * 1024 * 1024
"""What the API takes in one batch."""

_COLUMNS: Final = ("id", "key", "group", "type", "delay", "headers")
_WRITING: Final = (
    "queue",
    "topic",
    "endpoint",
    *_COLUMNS,
    "payload",
    "batchRows",
    "batchBytes",
    "inFlight",
    "onInvalid",
    "patience",
    "arrow",
)
_LETTERS: Final = ("deadLetters", "endpoint", "state", "patience")
_STATES: Final = ("pending", "reviewed", "replayed", "closed")
_STRETCH: Final = (
    "stream",
    "endpoint",
    "startingOffset",
    "endingOffset",
    "filter",
    "partitionRows",
    "failOnDataLoss",
    "patience",
)
_FOLLOWING: Final = (*_STRETCH, "group", "maxRowsPerBatch")
_BY_SPARK: Final = frozenset({"path", "checkpointlocation", "querytime", "queryname"})
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_SIZE: Final = re.compile(r"([0-9]{1,12})(Ki|Mi|k|M)?")
_SIZES: Final = {None: 1, "Ki": 1024, "Mi": 1024**2, "k": 1000, "M": 1000**2}


class InvalidOption(ValueError):  # noqa: N818  # it reads as what it is
    """An option that cannot be followed; the message names it."""


@dataclass(frozen=True)
class Writing:
    """How a DataFrame is written. `columns` maps a field of a job to the column that fills it."""

    path: str
    target: str
    endpoint: str
    columns: tuple[tuple[str, str], ...]
    payload: str | None
    batch_rows: int
    batch_bytes: int
    in_flight: int
    rejects: str | None
    patience: float
    arrow: bool

    @classmethod
    def read(cls, given: Mapping[str, str], columns: Sequence[str]) -> Self:
        """Read the options of a write of a DataFrame with these columns."""
        options = _known(given, _WRITING)
        path, target = _destination(options)
        named = {field: options[field.lower()] for field in _COLUMNS if field in options}
        payload = options.get("payload")
        for field, column in [*named.items(), ("payload", payload)]:
            if column is not None and column not in columns:
                raise InvalidOption(
                    f"option {field} names column {column!r}, which the DataFrame does not have; "
                    f"its columns are {', '.join(columns)}"
                )
        on_invalid = options.get("oninvalid", "fail")
        return cls(
            path=path,
            target=target,
            endpoint=_endpoint(options),
            columns=tuple(named.items()),
            payload=payload,
            batch_rows=_number(options, "batchRows", 1000, 1, MOST_ROWS),
            batch_bytes=_bytes(options, "batchBytes", 4 * 1024**2, MOST_BYTES),
            in_flight=_number(options, "inFlight", 4, 1, 64),
            rejects=None if on_invalid == "fail" else on_invalid,
            patience=_seconds(options, "patience", "5m"),
            arrow=_truth(options, "arrow", default=True),
        )


@dataclass(frozen=True)
class Letters:
    """Which dead letters are read; no queues means those of all queues."""

    queues: tuple[str, ...]
    endpoint: str
    state: str | None
    patience: float

    @classmethod
    def read(cls, given: Mapping[str, str]) -> Self:
        """Read the options of a read of dead letters."""
        options = _known(given, _LETTERS)
        text = options["deadletters"]
        names = () if text.strip() == "*" else tuple(name.strip() for name in text.split(","))
        if not all(names):
            raise InvalidOption(
                f"option deadLetters is {text!r}, neither queues as in orders,payments nor *"
            )
        state = options.get("state")
        if state not in (None, *_STATES):
            raise InvalidOption(f"option state is {state!r}, not one of {', '.join(_STATES)}")
        return cls(
            queues=tuple(dict.fromkeys(names)),
            endpoint=_endpoint(options),
            state=state,
            patience=_seconds(options, "patience", "5m"),
        )


@dataclass(frozen=True)
class Stretch:
    """Which part of a stream is read; a query has no end, and may have a group that shows it."""

    stream: str
    endpoint: str
    start: str
    end: str
    filter: str | None
    partition_rows: int
    fail_on_data_loss: bool
    patience: float
    group: str | None = None
    batch_rows: int | None = None

    @classmethod
    def read(cls, given: Mapping[str, str], *, following: bool) -> Self:
        """Read the options of a read of a stream, once or by a query that follows it."""
        options = _known(given, _FOLLOWING if following else _STRETCH)
        group, start = options.get("group"), options.get("startingoffset", "first")
        if following and "endingoffset" in options:
            raise InvalidOption("option endingOffset is for a batch; a query follows its stream")
        if following and group is None and start in {"last", "next"}:
            raise InvalidOption(
                f"option startingOffset is {start!r}, which is another place after a restart; "
                "set option group, whose cursor keeps it"
            )
        limit = _number(options, "maxRowsPerBatch", 0, 0, 10**9)
        return cls(
            stream=options["stream"],
            endpoint=_endpoint(options),
            start=start,
            end=options.get("endingoffset", "next"),
            filter=options.get("filter"),
            partition_rows=_number(options, "partitionRows", 50_000, 1, 10**9),
            fail_on_data_loss=_truth(options, "failOnDataLoss", default=True),
            patience=_seconds(options, "patience", "5m"),
            group=group,
            batch_rows=limit or None,
        )


def _known(given: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the options by lower case name, or name the one that does not exist."""
    options = {name.lower(): value for name, value in given.items()}
    for name in options:
        if name not in {known.lower() for known in names} | _BY_SPARK:
            raise InvalidOption(f"there is no option {name}; there is {', '.join(names)}")
    return options


def _destination(options: Mapping[str, str]) -> tuple[str, str]:
    """Return the API's path for batches, and what to call the place in messages."""
    queue, topic = options.get("queue"), options.get("topic")
    if (queue is None) == (topic is None):
        raise InvalidOption("give option queue or option topic, and not both")
    if queue is not None:
        return f"/v1/queues/{quote(queue, safe='')}/messages:batch", f"queue {queue}"
    return f"/v1/topics/{quote(str(topic), safe='/')}/messages:batch", f"topic {topic}"


def _endpoint(options: Mapping[str, str]) -> str:
    text = options.get("endpoint", ENDPOINT).rstrip("/")
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise InvalidOption(
            "option endpoint is not an address as in http://127.0.0.1:3550, without a user in it"
        )
    return text


def _number(options: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = options.get(name.lower(), str(default))
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise InvalidOption(f"option {name} is {text!r}, not a number from {least} to {most}")
    return int(text)


def _bytes(options: Mapping[str, str], name: str, default: int, most: int) -> int:
    text = options.get(name.lower(), str(default))
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * _SIZES[match[2]] if match else 0
    if not 1 <= size <= most:
        raise InvalidOption(f"option {name} is {text!r}, not a size up to {most}, as in 4Mi")
    return size


def _seconds(options: Mapping[str, str], name: str, default: str) -> float:
    text = options.get(name.lower(), default)
    match = _DURATION.fullmatch(text)
    if match is None:
        raise InvalidOption(f"option {name} is {text!r}, not a duration as in 90s")
    return int(match[1]) * _UNITS[match[2]]


def _truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name.lower(), str(default)).lower()
    if text not in {"true", "false"}:
        raise InvalidOption(f"option {name} is {text!r}, neither true nor false")
    return text == "true"
