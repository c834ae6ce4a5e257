"""Workers that pull beside one that is pushed to, from the same queue."""

import asyncio

from broker.port.play import eventually
from fixtures.adapters import Place
from fixtures.planes import Stage, stage
from fixtures.pulling import (
    NONE,
    ORDERS,
    QUICK,
    dead_letters,
    enqueue,
    finish,
    lease,
    until,
)
from namedqueue_sidecar.brokers.port import Depth


async def test_push_and_pull_share_a_queue_and_every_job_ends_once(scene: Stage) -> None:
    """A worker that crashes, one that extends, one that rejects, and a pushed one."""
    await scene.apply(scene.queue(retry=QUICK | {"maxAttempts": 9}, worker_concurrency=2))
    done: list[str] = []
    rejected: list[str] = []
    crashed: list[str] = []
    over = False

    async def puller(name: str) -> None:
        while not over:
            for item in await lease(scene, max=3, wait="500ms", visibility="30s", worker=name):
                if name == "rejecter":
                    rejected.append(item["id"])
                    assert (await finish(scene, item, "reject")).status == 200
                else:
                    assert (await finish(scene, item, "extend", visibility="1m")).status == 200
                    assert (await finish(scene, item, "ack")).status == 200
                    done.append(item["id"])

    scene.app.open.clear()
    await enqueue(scene, 60)
    await scene.app.jobs(2)
    for _ in range(3):
        items = await lease(scene, max=5, visibility="300ms", worker="crasher")
        crashed += [item["id"] for item in items]
    names = {f["worker"] for f in (await scene.api.get(f"{ORDERS}/in-flight")).json["items"]}
    assert "push" in names
    scene.app.open.set()
    pullers = [asyncio.create_task(puller(name)) for name in ("extender", "rejecter")]

    def all_ended() -> bool:
        return scene.app.finished + len(done) + len(rejected) >= 60

    await eventually(all_ended, "every job ended")
    over = True
    await asyncio.gather(*pullers)
    await until(scene, Depth(0, 0, 0, len(rejected)))
    pushed = [job.headers["ce-id"] for job in scene.app.got]
    ended = [*pushed, *done, *rejected]
    assert len(ended) == len(set(ended)) == 60
    assert crashed
    again = {job.headers["ce-id"]: job.headers["nq-attempt"] for job in scene.app.got}
    assert all(again.get(each, "2") != "1" for each in crashed)
    assert {letter["eventId"] for letter in await dead_letters(scene)} == set(rejected)


async def test_jobs_behind_a_slow_worker_are_finished_by_an_idle_one(
    scene: Stage, another_client: Place
) -> None:
    async with stage(broker=await another_client()) as other:
        slow = scene.queue(worker_concurrency=1, worker_timeout="5m")
        await scene.apply(slow)
        scene.app.open.clear()
        await enqueue(scene, 200)
        await scene.app.jobs(1)
        await other.plane.apply([other.queue(worker_concurrency=20)], declare=False, work=True)
        await eventually(lambda: other.app.finished == 199, "the idle one finished the others")
        assert (len(scene.app.got), scene.app.finished) == (1, 0)
        scene.app.open.set()
        await until(scene, NONE)
        ids = [job.headers["ce-id"] for job in (*scene.app.got, *other.app.got)]
        assert len(set(ids)) == len(ids) == 200


async def test_jobs_behind_a_slow_worker_are_finished_by_one_that_pulls(scene: Stage) -> None:
    await scene.apply(scene.queue(worker_concurrency=1, worker_timeout="5m"))
    scene.app.open.clear()
    await enqueue(scene, 50)
    await scene.app.jobs(1)
    done = 0
    while done < 49:
        for item in await lease(scene, max=10):
            assert (await finish(scene, item, "ack")).status == 200
            done += 1
    scene.app.open.set()
    await until(scene, NONE)
    assert len(scene.app.got) == 1
