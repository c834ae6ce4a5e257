"""An edited job: another id, another payload, and all else as it was."""

from hypothesis import given
from hypothesis import strategies as st

from namedqueue.edits import Edit, edited
from namedqueue.envelope import Job, decode, encode
from unit.jobs import jobs

texts = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
edits = st.builds(
    Edit,
    payload=st.binary(max_size=64),
    content_type=st.none() | texts,
    content_encoding=st.none() | texts,
    group=st.none() | texts,
)


@given(jobs, edits)
def test_an_edited_job_names_its_original_and_keeps_what_was_not_edited(
    job: Job, edit: Edit
) -> None:
    made = edited(job, edit, "new")
    assert (made.id, made.edited_from, made.payload) == ("new", job.id, edit.payload)
    changed = {"id", "edited_from", "payload", "content_type", "content_encoding", "group"}
    same = set(job._fields) - changed
    assert {name: getattr(made, name) for name in same} == {
        name: getattr(job, name) for name in same
    }
    assert made.group == (edit.group or job.group)
    properties, headers = encode(made)
    read = decode(properties, headers, made.payload, queue=job.queue, fresh_id="x", now=0)
    assert read.edited_from == job.id


@given(edits, edits, texts, texts)
def test_the_same_edit_of_the_same_job_has_the_same_id_and_no_other_has(
    one: Edit, other: Edit, job: str, another: str
) -> None:
    assert one.id_for("shop", "orders", job) == Edit(*one).id_for("shop", "orders", job)
    same = (one, job) == (other, another)
    assert (one.id_for("shop", "orders", job) == other.id_for("shop", "orders", another)) is same
    assert one.id_for("shop", "orders", job) != one.id_for("shop", "other", job)
