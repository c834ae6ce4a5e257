"""One pure function puts the sidecar into any pod, and touches nothing that it does not name."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue_operator.sidecars import Impossible, Pod, Sidecar, Wish, wish_of, with_sidecar

_SIDECAR = Sidecar("registry.example/sidecar:1")
_NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)
_QUEUES = st.lists(_NAMES, max_size=3, unique=True).map(tuple)
_WISHES = st.builds(Wish, _QUEUES, _QUEUES).filter(lambda wish: wish.queues)
_HOOKS = st.sampled_from([{}, {"preStop": {"sleep": {"seconds": 5}}}, {"postStart": {"exec": {}}}])


@st.composite
def _containers(draw: st.DrawFn) -> dict[str, Any]:
    container: dict[str, Any] = {"name": draw(_NAMES.filter(lambda name: name != "namedqueue"))}
    if draw(st.booleans()):
        container["lifecycle"] = draw(_HOOKS)
    if draw(st.booleans()):
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return container


@st.composite
def _pods(draw: st.DrawFn) -> Pod:
    spec: dict[str, Any] = {"containers": draw(st.lists(_containers(), min_size=1, max_size=3))}
    optional: dict[str, st.SearchStrategy[Any]] = {
        "initContainers": st.lists(_containers(), max_size=2),
        "volumes": st.just([{"name": "data", "emptyDir": {}}]),
        "terminationGracePeriodSeconds": st.integers(0, 600),
        "automountServiceAccountToken": st.booleans(),
        "securityContext": st.fixed_dictionaries({}, optional={"runAsUser": st.integers(0, 2)}),
        "nodeSelector": st.just({"disk": "fast"}),
    }
    spec |= draw(st.fixed_dictionaries({}, optional=optional))
    return {"metadata": {"labels": {"app": "shop"}}, "spec": spec}


def _put(pod: Pod, wish: Wish, timeout: float = 30.0, sidecar: Sidecar = _SIDECAR) -> Pod:
    return with_sidecar(pod, wish, dict.fromkeys(wish.queues, timeout), sidecar, "shop")


@given(_pods(), _WISHES, st.floats(0, 86_400))
def test_twice_is_once_and_the_given_pod_is_left_alone(
    pod: Pod, wish: Wish, timeout: float
) -> None:
    before = copy.deepcopy(pod)
    once = _put(pod, wish, timeout)
    assert pod == before
    assert _put(once, wish, timeout) == once


@given(_pods(), _WISHES)
def test_only_what_is_documented_changes(pod: Pod, wish: Wish) -> None:
    before, after = pod["spec"], _put(pod, wish)["spec"]
    assert after["initContainers"][1:] == before.get("initContainers", [])
    ours = ("namedqueue", "namedqueue-no-token")
    kept = [each for each in after["volumes"] if each["name"] not in ours]
    assert kept == before.get("volumes", [])
    for old, new in zip(before["containers"], after["containers"], strict=True):
        waits = bool(wish.consumed) and not old.get("lifecycle", {}).get("preStop")
        hook = {"httpGet": {"path": "/wait-for-drain", "port": 3551}}
        expected = {**old.get("lifecycle", {}), "preStop": hook} if waits else old.get("lifecycle")
        assert new == ({**old, "lifecycle": expected} if waits else old)
    changed = {"initContainers", "volumes", "containers", "terminationGracePeriodSeconds"}
    assert {key: after[key] for key in after.keys() - changed} == {
        key: before[key] for key in before.keys() - changed
    }


@given(_pods(), _WISHES, st.floats(0, 86_400))
def test_a_job_may_run_for_its_whole_timeout_after_the_pod_was_told_to_end(
    pod: Pod, wish: Wish, timeout: float
) -> None:
    after = _put(pod, wish, timeout)["spec"]
    period = after["terminationGracePeriodSeconds"]
    assert period >= pod["spec"].get("terminationGracePeriodSeconds", 30)
    [grace] = [arg for arg in after["initContainers"][0]["args"] if arg.startswith("--grace=")]
    drain = int(grace.removeprefix("--grace="))
    assert drain < period or period <= 1
    assert not wish.consumed or drain >= timeout


@given(_pods(), _WISHES)
def test_each_queue_has_its_folder_with_the_account_of_its_role(pod: Pod, wish: Wish) -> None:
    [volume] = [each for each in _put(pod, wish)["spec"]["volumes"] if each["name"] == "namedqueue"]
    mounted = {
        (path["path"].rpartition("/")[0], source["secret"]["name"])
        for source in volume["projected"]["sources"]
        if "secret" in source
        for path in source["secret"]["items"]
    }
    assert mounted == {
        *((f"consume/{queue}", f"nq-{queue}-consumer") for queue in wish.consumed),
        *((f"consume/{queue}/store", f"nq-{queue}-store") for queue in wish.consumed),
        *((f"produce/{queue}", f"nq-{queue}-producer") for queue in wish.produced),
    }


@given(_pods(), _WISHES)
def test_the_sidecar_never_gets_a_token_and_never_runs_as_root(pod: Pod, wish: Wish) -> None:
    after = _put(pod, wish)["spec"]
    sidecar = after["initContainers"][0]
    covered = [mount["mountPath"] for mount in sidecar["volumeMounts"]]
    unmounted = after.get("automountServiceAccountToken") is False
    assert unmounted or "/var/run/secrets/kubernetes.io/serviceaccount" in covered
    root = after.get("securityContext", {}).get("runAsUser") == 0
    assert sidecar["securityContext"].get("runAsUser") == (65532 if root else None)


def test_what_others_added_to_the_sidecar_stays_when_it_is_put_in_again() -> None:
    wish = Wish(("orders",), ())
    pod = _put({"metadata": {}, "spec": {"containers": [{"name": "app"}]}}, wish)
    pod["spec"]["initContainers"].insert(0, {"name": "mesh"})
    pod["spec"]["initContainers"][1]["env"] = [{"name": "ZONE", "value": "a"}]
    pod["spec"]["initContainers"][1]["terminationMessagePath"] = "/dev/termination-log"
    assert _put(pod, wish) == pod
    newer = _put(pod, wish, sidecar=Sidecar("registry.example/sidecar:2"))
    assert newer["spec"]["initContainers"][0]["image"] == "registry.example/sidecar:2"
    assert [each["name"] for each in newer["spec"]["initContainers"]] == ["namedqueue", "mesh"]


def test_the_resources_are_those_that_the_operator_was_given() -> None:
    sidecar = Sidecar("image", {"limits": {"cpu": "1"}})
    pod = _put({"metadata": {}, "spec": {"containers": []}}, Wish(("a",), ()), sidecar=sidecar)
    assert pod["spec"]["initContainers"][0]["resources"] == {"limits": {"cpu": "1"}}


@pytest.mark.parametrize("name", ["../../shop/namedqueues/orders", "a/b", "Orders", "a b", "é"])
def test_a_pod_that_asks_for_what_can_be_no_queue_is_refused(name: str) -> None:
    """A name becomes a part of an address at the API server, and must not lead elsewhere."""
    for annotation in ("namedqueue.io/consume", "namedqueue.io/produce"):
        with pytest.raises(Impossible, match="is no name of a queue"):
            wish_of({"annotations": {annotation: f"orders,{name}"}})


@pytest.mark.parametrize(
    ("annotations", "wish"),
    [
        ({"namedqueue.io/consume": "orders"}, Wish(("orders",), ())),
        ({"namedqueue.io/consume": " a, b ,a,"}, Wish(("a", "b"), ())),
        ({"namedqueue.io/produce": "a", "namedqueue.io/consume": "a"}, Wish(("a",), ("a",))),
    ],
)
def test_annotations_name_queues_separated_by_commas(
    annotations: dict[str, str], wish: Wish
) -> None:
    assert wish_of({"annotations": annotations}) == wish


@pytest.mark.parametrize("metadata", [{}, {"annotations": {"namedqueue.io/consume": " , "}}])
def test_a_pod_that_names_no_queue_is_told_what_to_write(metadata: dict[str, Any]) -> None:
    with pytest.raises(Impossible, match=r"annotate it with namedqueue.io/consume or"):
        wish_of(metadata)


def test_a_container_of_our_name_is_refused() -> None:
    with pytest.raises(Impossible, match="give it another name"):
        _put({"metadata": {}, "spec": {"containers": [{"name": "namedqueue"}]}}, Wish(("a",), ()))
