"""What the API says of a batch decides what is sent again, what is set aside, and what ends it."""

import json

import pytest

from pyspark_namedqueue.answers import Reading, Refused, Rejected, read
from pyspark_namedqueue.entries import Entry

BATCH = [Entry(str(n), b"%d" % n) for n in range(4)]


def answer(status: int, document: object, retry_after: str | None = None) -> Reading:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    return read(BATCH, status, headers, json.dumps(document).encode(), "queue orders")


def failure(index: int, code: str) -> dict[str, object]:
    return {"index": index, "code": code, "detail": "because"}


def test_an_accepted_batch_is_done() -> None:
    assert answer(202, {"accepted": 4}) == Reading(4)


@pytest.mark.parametrize("document", [{"accepted": 3}, {}, "thanks"])
def test_an_answer_that_does_not_confirm_every_row_is_no_success(document: object) -> None:
    with pytest.raises(Refused, match="202"):
        answer(202, document)


def test_of_a_batch_that_was_partly_taken_only_what_may_work_is_sent_again() -> None:
    failed = [failure(1, "SCHEMA_VIOLATION"), failure(3, "QUEUE_FULL")]
    reading = answer(207, {"accepted": 2, "failed": failed}, "2")
    assert reading.accepted == 2
    assert reading.rejected == [Rejected(BATCH[1], "SCHEMA_VIOLATION", "because")]
    assert reading.again == [BATCH[3]]
    assert reading.pause == 2


@pytest.mark.parametrize("status", [429, 503, 500, 502])
def test_a_busy_or_broken_api_gets_the_whole_batch_again(status: int) -> None:
    reading = answer(status, {"code": "BROKER_UNAVAILABLE", "detail": "away"}, "7")
    assert (reading.accepted, reading.again, reading.pause) == (0, BATCH, 7)
    assert "away" in reading.why


@pytest.mark.parametrize("pause", ["-1", "soon", "Wed, 21 Oct 2015 07:28:00 GMT", ""])
def test_a_pause_that_is_no_number_is_left_to_us(pause: str) -> None:
    assert answer(503, {}, pause).pause == 0


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (404, {"code": "UNKNOWN_QUEUE", "detail": "there is no NamedQueue"}),
        (403, "a proxy says no"),
        (207, {"failed": [failure(0, "UNROUTABLE")]}),
    ],
)
def test_a_wrong_address_or_queue_ends_the_task_at_once(status: int, document: object) -> None:
    with pytest.raises(Refused, match="queue orders takes nothing"):
        answer(status, document)


def test_an_answer_that_is_not_json_is_quoted() -> None:
    reading = read(BATCH, 502, {}, b"<html>bad gateway</html>", "queue orders")
    assert "bad gateway" in reading.why
