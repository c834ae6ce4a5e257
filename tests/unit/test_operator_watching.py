"""When a watch counts as silent, and when it was only ended or is not wanted any more."""

from dataclasses import dataclass

import pytest

from namedqueue_operator.watching import Hearing, Watches

_HEARING = Hearing(60)
_PLACE = "/apis/namedqueue.io/v1alpha1/namedqueues"


@dataclass
class _Answer:
    status: int = 200
    closed: bool = False


class _Ear:
    """Watches on a clock that the test moves."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.watches = Watches(_HEARING, lambda: self.time)

    def granted(self) -> _Answer:
        answer = _Answer()
        self.watches.asked(_PLACE)
        self.watches.answered(_PLACE, answer)
        return answer

    def silent(self) -> list[str]:
        return list(self.watches.silent())


@pytest.fixture
def ear() -> _Ear:
    return _Ear()


def test_nothing_is_silent_before_anything_is_watched(ear: _Ear) -> None:
    assert ear.silent() == []


def test_a_watch_that_outlives_its_span_by_far_is_silent_and_named(ear: _Ear) -> None:
    ear.granted()
    ear.time += _HEARING.patience
    assert ear.silent() == []
    ear.time += 1
    assert ear.silent() == [
        f"the watch of {_PLACE} has been silent for 151 s: it should have ended"
    ]


def test_watches_that_follow_each_other_never_are(ear: _Ear) -> None:
    for _ in range(100):
        ear.granted().closed = True
        ear.time += _HEARING.span
        assert ear.silent() == []


def test_a_watch_that_was_ended_and_is_not_asked_for_again_is_not_wanted(ear: _Ear) -> None:
    ear.granted().closed = True
    ear.time += 10 * _HEARING.patience
    assert ear.silent() == []


def test_asking_anew_after_a_silence_starts_no_new_patience(ear: _Ear) -> None:
    ear.granted().closed = True
    ear.time += _HEARING.inactivity
    ear.watches.asked(_PLACE)
    ear.watches.failed(_PLACE, "connection refused")
    ear.time += _HEARING.patience - _HEARING.inactivity + 1
    assert ear.silent() == [f"the watch of {_PLACE} has been silent for 151 s: connection refused"]
    ear.watches.asked(_PLACE)
    assert ear.silent() != []
    ear.watches.answered(_PLACE, _Answer())
    assert ear.silent() == []


def test_a_watch_that_is_refused_is_no_silence_but_a_failing_server_is(ear: _Ear) -> None:
    ear.watches.asked(_PLACE)
    ear.watches.answered(_PLACE, _Answer(403))
    ear.time += 10 * _HEARING.patience
    assert ear.silent() == []
    ear.watches.asked(_PLACE)
    ear.watches.answered(_PLACE, _Answer(500))
    ear.time += _HEARING.patience + 1
    assert ear.silent() == [f"the watch of {_PLACE} has been silent for 151 s: HTTP 500"]


@pytest.mark.parametrize("span", [1, 3, 60, 600])
def test_a_server_in_time_is_never_given_up_and_kopf_can_ask_before_we_despair(span: int) -> None:
    hearing = Hearing(span)
    assert span < hearing.inactivity
    assert span + hearing.inactivity < hearing.patience
