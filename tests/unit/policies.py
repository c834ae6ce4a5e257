"""Retry policies as Hypothesis draws them: anything that the API accepts."""

from hypothesis import strategies as st

from namedqueue.api.durations import Duration
from namedqueue.api.namedqueue import Retry

_MONTH_MS = 30 * 86_400_000


@st.composite
def policies(draw: st.DrawFn) -> Retry:
    shortest, longest = sorted(
        draw(st.tuples(*[st.integers(0, 120_000) | st.integers(0, _MONTH_MS)] * 2))
    )
    return Retry.model_validate(
        {
            "maxAttempts": draw(st.integers(1, 100)),
            "delay": Duration.of_milliseconds(shortest),
            "multiplier": draw(st.floats(1, 4) | st.floats(1, 100)),
            "maxDelay": Duration.of_milliseconds(longest),
            "jitter": draw(st.floats(0, 1)),
        }
    )
