"""Messages to topics, and the list of queues."""

import pytest

from broker.port.play import NAMESPACE
from fixtures.planes import Stage


@pytest.mark.parametrize(
    "written", ["order/eu/created", "order%2Feu%2Fcreated", "order%2feu/created"]
)
async def test_a_topics_slashes_come_as_they_are_or_percent_encoded(
    scene: Stage, written: str
) -> None:
    subscribed = [{"topic": "order/+/created"}]
    await scene.apply(
        scene.queue("mail", subscriptions=subscribed),
        scene.queue("audit", subscriptions=[{"topic": "#"}]),
        scene.queue("other", subscriptions=[{"topic": "order/+/paid"}]),
    )
    sent = await scene.api.post(f"/v1/topics/{written}/messages", b"1", NQ_Header_A="b")
    assert (sent.status, sent.json["topic"]) == (202, "order/eu/created")
    jobs = await scene.app.jobs(2)
    assert {job.headers["nq-queue"] for job in jobs} == {"mail", "audit"}
    assert {job.headers["nq-topic"] for job in jobs} == {"order/eu/created"}
    assert {job.headers["ce-id"] for job in jobs} == {sent.json["id"]}
    assert {job.headers["nq-header-a"] for job in jobs} == {"b"}


async def test_a_topic_that_nothing_subscribes_to_is_a_404(idle: Stage) -> None:
    refused = await idle.api.post("/v1/topics/order/created/messages", b"1")
    assert (refused.status, refused.code) == (404, "NO_SUBSCRIBER")


@pytest.mark.parametrize("topic", ["a/%2B/b", "%23", "a//b", "/", "a%20b", "%ff", "a" * 201])
async def test_what_is_no_topic_is_a_400(idle: Stage, topic: str) -> None:
    refused = await idle.api.post(f"/v1/topics/{topic}/messages", b"1")
    assert (refused.status, refused.code) == (400, "INVALID_REQUEST")


async def test_a_message_to_a_topic_has_no_delay_that_could_be_ignored(scene: Stage) -> None:
    await scene.apply(scene.queue(worker=False, subscriptions=[{"topic": "a"}]))
    for name in ("NQ_Delay", "NQ_Priority"):
        refused = await scene.api.post("/v1/topics/a/messages", b"1", **{name: "1"})
        assert (refused.status, refused.code) == (422, "INVALID_FIELD")


async def test_a_batch_to_a_topic_reaches_every_subscriber_and_names_what_it_refuses(
    scene: Stage,
) -> None:
    await scene.apply(
        scene.queue("mail", subscriptions=[{"topic": "order/+/created"}]),
        scene.queue("audit", subscriptions=[{"topic": "order/#"}]),
    )
    target = "/v1/topics/order/eu/created/messages:batch"
    sent = await scene.api.post(target, [{"id": "a", "payload": 1}, {"id": "b", "payload": 2}])
    assert (sent.status, sent.json) == (202, {"accepted": 2})
    jobs = await scene.app.jobs(4)
    got = sorted((job.headers["nq-queue"], job.headers["ce-id"], job.body) for job in jobs)
    assert got == [
        *(("audit", "a", b"1"), ("audit", "b", b"2")),
        *(("mail", "a", b"1"), ("mail", "b", b"2")),
    ]
    assert {job.headers["nq-topic"] for job in jobs} == {"order/eu/created"}

    mixed = [{"payload": 1, "delay": "1s"}, {"payload": 2}, {"priority": 1, "payload": 3}, {}]
    partly = await scene.api.post(target, mixed)
    assert (partly.status, partly.json["accepted"]) == (207, 1)
    codes = [(each["index"], each["code"]) for each in partly.json["failed"]]
    assert codes == [(0, "INVALID_FIELD"), (2, "INVALID_FIELD"), (3, "INVALID_REQUEST")]


async def test_a_batch_to_a_topic_that_nothing_subscribes_to_is_a_404(idle: Stage) -> None:
    refused = await idle.api.post("/v1/topics/order/created/messages:batch", [{"payload": 1}])
    assert (refused.status, refused.code) == (404, "NO_SUBSCRIBER")


async def test_queues_are_listed_by_name_with_their_depth(scene: Stage) -> None:
    await scene.apply(scene.queue("b", worker=False), scene.queue("a"))
    await scene.api.post("/v1/queues/b/messages", b"1")
    listed = (await scene.api.get("/v1/queues")).json
    assert [each["name"] for each in listed["items"]] == ["a", "b"]
    assert listed["next"] is None
    shown = (await scene.api.get("/v1/queues/b")).json
    assert shown == listed["items"][1]
    assert shown["depth"] == {"ready": 1, "inFlight": 0, "waiting": 0, "dead": 0}
    assert (shown["namespace"], shown["worker"]) == (NAMESPACE, None)
