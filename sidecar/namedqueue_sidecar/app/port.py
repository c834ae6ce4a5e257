"""What the workers need of the app: to be called, and to say that it is there.

Like the broker's port it is made of plain calls. `post` calls back exactly once, within the
attempt's time-out, with the app's answer or the reason why there is none.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from namedqueue.outcomes import LARGEST_BODY, Attempted

Done: TypeAlias = Callable[[Attempted], None]


class Call(NamedTuple):
    """One POST to the app; `job_id` names the job whose attempt it is."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    timeout: float
    job_id: str = ""
    largest_answer: int = LARGEST_BODY


class Ready(Protocol):
    """What can be waited for."""

    async def ready(self) -> bool:
        """Tell whether the app answers its probe."""


class App(Ready, Protocol):
    """The handler's process, on loopback."""

    def post(self, call: Call, done: Done) -> None:
        """Call the app; `done` gets the answer, never from within this call."""

    async def close(self) -> None:
        """Drop the connections; calls under way end as resets."""
