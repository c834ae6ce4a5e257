"""Whatever a person writes as a pod template, it becomes a Deployment or a sentence."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namedqueue_operator.sidecars import Impossible, Sidecar
from namedqueue_operator.workers import manifests, uses_our_account

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab"), inner, max_size=2),
    max_leaves=4,
)
_CONTAINERS = _JSON | st.lists(
    st.fixed_dictionaries({}, optional={"name": _JSON, "lifecycle": _JSON}), max_size=2
)
_SPECS = _JSON | st.fixed_dictionaries(
    {},
    optional={
        "containers": _CONTAINERS,
        "initContainers": _CONTAINERS,
        "volumes": _CONTAINERS,
        "serviceAccountName": _JSON,
        "securityContext": _JSON,
        "terminationGracePeriodSeconds": _JSON,
        "automountServiceAccountToken": _JSON,
    },
)
_METADATA = _JSON | st.fixed_dictionaries({}, optional={"labels": _JSON, "annotations": _JSON})
_TEMPLATES = st.fixed_dictionaries({}, optional={"metadata": _METADATA, "spec": _SPECS})


def _body(template: Any) -> dict[str, Any]:
    metadata = {"name": "orders", "namespace": "shop", "uid": "u"}
    return {"metadata": metadata, "spec": {"worker": {"port": 80, "template": template}}}


@given(_TEMPLATES)
def test_a_template_of_any_shape_is_taken_or_refused_with_its_place(template: Any) -> None:
    body = _body(template)
    kinds = ["ServiceAccount", "Deployment"] if uses_our_account(body) else ["Deployment"]
    made, refusal = _tried(body)
    assert [each["kind"] for each in made] == ([] if refusal else kinds)
    assert not refusal or refusal.startswith(("metadata", "spec", "the pod has a container"))


def _tried(body: dict[str, Any]) -> tuple[list[Any], str]:
    try:
        return manifests(body, {"orders": 30.0}, Sidecar("sidecar:1")), ""
    except Impossible as refusal:
        return [], str(refusal)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ({"metadata": 5}, "metadata is no object"),
        ({"metadata": {"labels": []}}, "metadata.labels is no object"),
        ({"spec": "x"}, "spec is no object"),
        ({"spec": {"containers": {"name": "app"}}}, "spec.containers is no list"),
        ({"spec": {"volumes": [1]}}, "spec.volumes is no list of objects"),
        ({"spec": {"containers": [{"lifecycle": 1}]}}, "spec.containers.lifecycle is no object"),
        ({"spec": {"terminationGracePeriodSeconds": "5"}}, "is no whole number of seconds"),
    ],
)
def test_a_misshapen_template_is_named_by_its_place(template: Any, says: str) -> None:
    with pytest.raises(Impossible, match=says):
        manifests(_body(template), {"orders": 30.0}, Sidecar("sidecar:1"))
