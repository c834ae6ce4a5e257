"""Options of the Spark source are checked at once, and the message names the option."""

import pytest

from pyspark_namedqueue.options import InvalidOption, Writing

COLUMNS = ("id", "body")


def test_what_is_left_out_has_a_default() -> None:
    read = Writing.read({"queue": "orders"}, COLUMNS)
    assert read.endpoint == "http://127.0.0.1:3550"
    assert read.path == "/v1/queues/orders/messages:batch"
    assert (read.batch_rows, read.batch_bytes, read.in_flight) == (1000, 4 * 1024**2, 4)
    assert read.rejects is None


def test_names_are_read_in_any_case_and_slashes_of_topics_stay() -> None:
    read = Writing.read({"TOPIC": "order/eu/created", "batchrows": "7"}, COLUMNS)
    assert read.path == "/v1/topics/order/eu/created/messages:batch"
    assert read.batch_rows == 7


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "give option queue or option topic"),
        ({"queue": "a", "topic": "b"}, "and not both"),
        ({"quee": "a"}, "there is no option quee; there is queue, topic"),
        ({"queue": "a", "key": "nope"}, "option key names column 'nope'.*columns are id, body"),
        ({"queue": "a", "payload": "nope"}, "option payload names column"),
        ({"queue": "a", "batchRows": "0"}, "option batchRows is '0', not a number from 1 to"),
        ({"queue": "a", "batchRows": "many"}, "option batchRows"),
        ({"queue": "a", "batchBytes": "17Mi"}, "option batchBytes is '17Mi', not a size"),
        ({"queue": "a", "inFlight": "65"}, "option inFlight"),
        ({"queue": "a", "patience": "soon"}, "option patience is 'soon', not a duration"),
        ({"queue": "a", "arrow": "maybe"}, "option arrow"),
        ({"queue": "a", "endpoint": "127.0.0.1:3550"}, "option endpoint is not an address"),
        ({"queue": "a", "endpoint": "http://me:secret@host"}, "without a user in it"),
    ],
    ids=str,
)
def test_what_cannot_be_followed_is_refused_by_name(given: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOption, match=says) as refused:
        Writing.read(given, COLUMNS)
    assert "secret" not in str(refused.value)
