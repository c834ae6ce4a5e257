"""`kubectl delete`: what stays on the broker, what goes, and what it waits for."""

from control_plane.operating import Operated


def test_retain_leaves_jobs_and_queues_and_takes_the_users(operated: Operated) -> None:
    operated.apply()
    operated.ready()
    operated.send(2)
    before = operated.observed()
    operated.delete()
    operated.gone()
    left = operated.observed()
    assert (left.queues, left.exchanges, left.bindings, left.policies) == (
        before.queues,
        before.exchanges,
        before.bindings,
        before.policies,
    )
    assert left.users == ()
    operated.apply()
    operated.ready()
    operated.in_place()
    operated.eventually(
        lambda: operated.queue()["status"]["depth"]["ready"] == 2, "the jobs are found again"
    )


def test_delete_removes_everything_of_an_empty_queue_and_nothing_of_another(
    operated: Operated,
) -> None:
    operated.apply(deletionPolicy="Delete", subscriptions=[{"topic": "order/#"}])
    operated.apply("order")
    operated.ready()
    operated.ready("order")
    operated.delete()
    operated.gone()
    left = operated.observed()
    assert (left.queues, left.users) == ((), ())
    assert [exchange.name for exchange in left.exchanges] == ["nq.topics"]
    assert [policy.name for policy in left.policies] == ["nq.transit"]
    assert operated.observed("order") == operated.desired("order")


def test_delete_waits_for_jobs_and_says_how_many_are_left(operated: Operated) -> None:
    operated.apply(deletionPolicy="Delete")
    operated.ready()
    operated.send(3)
    operated.delete()
    said = operated.says("Ready", "False", "JobsLeft: 3 jobs are left")
    assert f"3 in {operated.names().main}" in said["message"]
    assert "namedqueue.io/force-delete=true" in said["message"]
    operated.eventually(
        lambda: operated.queue()["status"]["depth"]["ready"] == 3, "the depth is told as well"
    )
    operated.purge(operated.names().main)
    operated.gone()
    assert operated.observed().queues == ()


def test_a_job_sent_just_before_a_delete_is_not_lost(operated: Operated) -> None:
    """A quorum queue tells its length late; the operator must not believe an old zero."""
    operated.apply(deletionPolicy="Delete")
    operated.ready()
    operated.send()
    operated.delete()
    operated.says("Ready", "False", "JobsLeft: 1 job is left")


def test_a_queue_whose_vhost_is_gone_goes_with_its_users(operated: Operated) -> None:
    operated.apply(deletionPolicy="Delete")
    operated.ready()
    operated.send()
    operated.delete()
    operated.says("Ready", "False", "JobsLeft")
    operated.broker.api("DELETE", f"vhosts/{operated.vhost}")
    operated.gone()
    assert not [event for event in operated.events() if event.startswith("Orphaned")]
    users = {user["name"] for user in operated.listed("users")}
    assert not users & {operated.names().consumer, operated.names().producer}


def test_a_forced_delete_does_not_wait(operated: Operated) -> None:
    operated.apply(deletionPolicy="Delete")
    operated.ready()
    operated.send(3)
    operated.delete()
    operated.says("Ready", "False", "JobsLeft")
    operated.kubectl("annotate", "nq/orders", "namedqueue.io/force-delete=true")
    operated.gone()
    assert operated.observed().queues == ()


def test_a_namespace_goes_with_its_queues(operated: Operated) -> None:
    operated.apply(deletionPolicy="Delete")
    operated.apply("kept")
    operated.ready()
    operated.ready("kept")
    operated.kubectl("delete", "namespace", operated.namespace, "--timeout=180s")
    assert operated.observed().queues == ()
    assert operated.observed("kept").queues != ()
