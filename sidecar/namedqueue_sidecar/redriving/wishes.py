"""Which dead letters are to be sent back, and how."""

from typing import Final, NamedTuple, Self

from namedqueue.api.redrive import QueueRedriveSpec
from namedqueue.deadletters import DeadLetterRecord

FASTEST: Final = 100_000
"""Jobs a second, as in a QueueRedrive."""


class Wish(NamedTuple):
    """What was asked for; None means any, or no bound."""

    limit: int | None = None
    reason: str | None = None
    ids: frozenset[str] | None = None
    rate_per_second: float | None = None
    abort_after_failures: int | None = None
    dry_run: bool = False

    @classmethod
    def of(cls, spec: QueueRedriveSpec) -> Self:
        """Read it from the spec of a QueueRedrive."""
        return cls(
            limit=spec.limit,
            reason=spec.reason,
            ids=frozenset(spec.ids) if spec.ids else None,
            rate_per_second=spec.rate_per_second,
            abort_after_failures=spec.abort_after_failures,
            dry_run=spec.dry_run,
        )

    def chooses(self, record: DeadLetterRecord) -> bool:
        """Tell whether a dead letter is meant."""
        by_reason = self.reason in (None, record.reason.code)
        return by_reason and (self.ids is None or record.job.id in self.ids)
