"""Logs as one JSON object a line: what happened in words, and as fields for machines."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_KOPFS_OWN: Final = frozenset({"settings", "k8s_skip", "k8s_ref"})
_NOISY: Final = ("kopf.objects", "kopf._core.engines.peering", "aiohttp.access")


class JsonLines(logging.Formatter):
    """Writes a record and whatever `extra` came with it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{
                key: value
                for key, value in vars(record).items()
                if key not in _STANDARD | _KOPFS_OWN
            },
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


def log_as_json(level: str) -> None:
    """Send all logs to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("kopf.objects").addFilter(_is_news)
    for name in _NOISY:  # each handled event, in full: ours say it better
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))


def _is_news(record: logging.LogRecord) -> bool:
    """Drop what kopf calls a temporary failure: a queue that waits says so in its condition."""
    return "failed temporarily" not in record.getMessage()
