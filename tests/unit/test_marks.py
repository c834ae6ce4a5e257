"""What groups have read is known to all who read the log of it, whatever order records came in."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.scale import scaled
from namedqueue_sidecar.brokers.rabbitmq.marks import Book, Mark, Record, decode, encode

GROUPS = ["audit", "billing", *(f"group-{number}" for number in range(100))]
marks = st.builds(Mark, st.integers(0, 3), st.integers(0, 20))
records = st.builds(
    Record,
    st.dictionaries(st.sampled_from(GROUPS), marks, max_size=3),
    st.integers(0, 10),
    st.booleans(),
)


@given(records)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode(encode(record)) == record


@given(st.binary(max_size=50) | st.sampled_from([b"{}", b"[]", b'{"marks":{"a":[1]},"since":0}']))
def test_what_is_no_record_is_passed_over(body: bytes) -> None:
    assert decode(body) is None
    assert Book().read(7, decode(body)) == {}


@given(st.lists(records), st.randoms())
def test_the_order_of_records_and_their_repetition_make_no_difference(
    log: list[Record], chance: Random
) -> None:
    one, other = Book(), Book()
    for record in log:
        one.learn(record)
    shuffled = log * 2
    chance.shuffle(shuffled)
    for record in shuffled:
        other.learn(record)
    assert one.cursors == other.cursors


def test_a_commit_never_moves_a_group_back_and_a_seek_does() -> None:
    book = Book()
    late = book.commit("audit", 5)
    book.learn(book.commit("audit", 8))
    book.learn(late)
    assert book.cursors == {"audit": 8}
    overtaken = book.commit("audit", 9)
    assert book.learn(book.seek("audit", 2)) == {"audit": 2}
    assert book.learn(overtaken) == {}
    assert book.cursors == {"audit": 2}
    book.learn(book.commit("audit", 3))
    assert book.cursors == {"audit": 3}


class Client:
    """Someone who writes to a log, and reads it at his own pace."""

    def __init__(self, log: list[bytes], since: int = 0) -> None:
        self.log = log
        self.book = Book()
        self.book.begin(since)

    def write(self, record: Record) -> Record:
        self.log.append(encode(record))
        self.book.learn(record)
        return record

    def follow(self, records: int | None = None) -> None:
        for offset in range(self.book.following, len(self.log))[:records]:
            self.book.read(offset, decode(self.log[offset]))


def newcomer(log: list[bytes]) -> Client:
    """Return someone who has read the log from where its newest record says, and no more."""
    newest = decode(log[-1])
    assert newest is not None
    found = Client(log, newest.since)
    found.follow()
    return found


clients = st.integers(0, 2)
steps = st.one_of(
    st.tuples(st.just("commit"), clients, st.sampled_from(GROUPS), st.integers(0, 1000)),
    st.tuples(st.just("seek"), clients, st.sampled_from(GROUPS), st.integers(0, 1000)),
    st.tuples(st.just("be busy"), clients, st.sampled_from(GROUPS), st.integers(1, 80)),
    st.tuples(st.just("follow"), clients, st.just(""), st.integers(1, 90)),
)


@settings(max_examples=scaled(2000))
@given(st.lists(steps, max_size=30))
def test_a_newcomer_who_reads_only_the_end_of_the_log_knows_every_group(
    history: list[tuple[str, int, str, int]],
) -> None:
    log: list[bytes] = []
    writers = [Client(log) for _ in range(3)]
    truth = Book()
    for step, who, group, number in history:
        writer = writers[who]
        if step == "follow":
            writer.follow(number)
        elif step == "seek":
            truth.learn(writer.write(writer.book.seek(group, number)))
        elif step == "commit":
            truth.learn(writer.write(writer.book.commit(group, number)))
        else:
            for cursor in range(number):
                truth.learn(writer.write(writer.book.commit(group, cursor)))
                writer.follow()
        if log:
            assert newcomer(log).book.cursors == truth.cursors


def test_only_a_short_end_of_a_long_log_has_to_be_read() -> None:
    log: list[bytes] = []
    client = Client(log)
    for number in range(5000):
        client.write(client.book.commit(GROUPS[number % 90] if number < 90 else "busy", number))
        client.follow()
        newest = decode(log[-1])
        assert newest is not None
        assert number - newest.since <= 2 * 91
    assert len(newcomer(log).book.cursors) == 91
