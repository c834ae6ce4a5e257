"""Reviews go forward, and dead letters of one cause make one group."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue.deadletters import DeadLetterRecord, bury
from namedqueue.envelope import Job
from namedqueue.retry import DeadLetter
from namedqueue.triage import LONGEST_SHAPE, NEXT, OPEN, Review, group, letter_key, shape


def record(message: str, code: str = "HTTP_500", **fields: object) -> DeadLetterRecord:
    job = Job("a", "orders", b"{}", 0, 0)._replace(**fields)  # type: ignore[arg-type]  # any field
    return bury(job, DeadLetter(code, message), None, 0)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 17 is unknown", "order 4711 is unknown"),
        ("no card 'visa' for \"bob\"", "no card 'amex' for \"eve\""),
        (
            "no user 5f1d7a84-c3b9-2e60-a1f4-d8c07b3e9652",
            "no user 00000000-0000-4000-8000-000000000000",
        ),
        ("time-out after 30.5 s at 10:04:11", "time-out after 2 s at 23:59:59"),
        ("mail to bob@example.org bounced", "mail to eve@example.com bounced"),
        ("GET https://a/1?b=c failed", "GET https://b/x failed"),
        ("lost connection\n to  db1", "lost connection to db2"),
        ("token a8f3c91e is void", "token 77bb01ce99 is void"),
    ],
)
def test_what_differs_from_job_to_job_makes_no_difference(one: str, other: str) -> None:
    assert shape(one) == shape(other)
    assert group(record(one)) == group(record(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("card declined", "card expired"), ("no stock for 'a'", "no price for 'a'")],
)
def test_other_words_make_another_group(one: str, other: str) -> None:
    assert group(record(one)) != group(record(other))


def test_another_code_or_handler_makes_another_group() -> None:
    letter = record("no")
    assert group(letter) != group(record("no", code="TIMEOUT"))
    assert group(letter, "/jobs") != group(letter, "/cancelled")


@given(st.text(max_size=400))
def test_a_shape_is_its_own_shape_and_short(message: str) -> None:
    folded = shape(message)
    assert len(folded) <= LONGEST_SHAPE
    if len(folded) < LONGEST_SHAPE - len("<address>"):
        assert shape(folded) == folded


@given(st.integers(), st.integers())
def test_numbers_never_make_a_group(one: int, other: int) -> None:
    assert shape(f"item {one} of 9") == shape(f"item {other} of 9")


@given(st.lists(st.sampled_from(Review), max_size=6))
def test_a_review_never_leaves_its_end_and_reaches_it_from_anywhere(path: list[Review]) -> None:
    state = Review.PENDING
    for wanted in path:
        if wanted in NEXT[state]:
            assert state is not Review.CLOSED
            state = wanted
    assert state is Review.CLOSED or Review.CLOSED in NEXT[state]
    assert (Review.REPLAYED in NEXT[state]) is (state in OPEN)


def test_a_letter_is_the_same_until_it_is_redriven() -> None:
    first = record("no")
    assert letter_key(first) == letter_key(record("another word", code="TIMEOUT"))
    assert letter_key(first) != letter_key(record("no", redrives=1))
    assert letter_key(first) != letter_key(record("no", payload=b"[]"))
