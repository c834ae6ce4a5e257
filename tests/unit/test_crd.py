"""The CRDs are what the API server wants and what the design says."""

from collections.abc import Iterator
from typing import Any

import pytest

from namedqueue.api.crd import Json, named_queue_crd, queue_redrive_crd
from namedqueue.api.namedqueue import NamedQueueSpec
from namedqueue.api.redrive import QueueRedriveSpec
from namedqueue.api.rules import Model

CRDS = [named_queue_crd(), queue_redrive_crd()]
_each = pytest.mark.parametrize("crd", CRDS, ids=lambda crd: crd["spec"]["names"]["kind"])
_OPAQUE = "x-kubernetes-preserve-unknown-fields"


def _version(crd: Json) -> Json:
    version: Json = crd["spec"]["versions"][0]
    return version


def _schema(crd: Json) -> Json:
    schema: Json = _version(crd)["schema"]["openAPIV3Schema"]
    return schema


def _nodes(schema: Json, at: str = "") -> Iterator[tuple[str, Json]]:
    """Walk a schema: every node with its place."""
    yield at, schema
    for name, below in schema.get("properties", {}).items():
        yield from _nodes(below, f"{at}.{name}")
    if "items" in schema:
        yield from _nodes(schema["items"], f"{at}[]")


@_each
def test_the_schema_is_structural(crd: Json) -> None:
    """Each node has one type, and nothing that only pydantic or a full JSON Schema knows."""
    foreign = {"$ref", "$defs", "anyOf", "oneOf", "allOf", "title", "const", "additionalProperties"}
    for at, node in _nodes(_schema(crd)):
        assert ("type" in node) != ("x-kubernetes-int-or-string" in node), at
        assert not foreign & node.keys(), at
        assert ("items" in node) == (node.get("type") == "array"), at
        known = ("properties", _OPAQUE) if at != ".metadata" else ("type",)
        assert node.get("type") != "object" or any(key in node for key in known), at
        assert set(node.get("required", ())) <= node.get("properties", {}).keys(), at


@_each
def test_every_field_of_ours_is_described(crd: Json) -> None:
    nodes = _nodes(_schema(crd)["properties"]["spec"])
    assert [at for at, node in nodes if "description" not in node and at[-2:] != "[]"] == []


@_each
def test_every_text_and_every_list_of_a_spec_is_bounded(crd: Json) -> None:
    """The API server reckons what a rule can cost by these bounds."""
    for at, node in _nodes(_schema(crd)["properties"]["spec"]):
        if node.get("type") == "string":
            assert "maxLength" in node or "enum" in node, at
        if node.get("type") == "array":
            assert "maxItems" in node, at


@_each
def test_no_sentence_has_a_hole_in_it(crd: Json) -> None:
    for at, node in _nodes(_schema(crd)):
        for rule in node.get("x-kubernetes-validations", ()):
            assert "{" not in rule["message"], at
            assert "{" not in rule.get("messageExpression", ""), at
            assert "ms(" not in rule["rule"], at


@pytest.mark.parametrize(("crd", "model"), [(CRDS[0], NamedQueueSpec), (CRDS[1], QueueRedriveSpec)])
def test_the_schema_has_the_models_fields_and_defaults(crd: Json, model: type[Model]) -> None:
    spec = _schema(crd)["properties"]["spec"]
    assert list(spec["properties"]) == [info.alias for info in model.model_fields.values()]
    required = [info.alias for info in model.model_fields.values() if info.is_required()]
    assert spec.get("required", []) == required
    if not required:
        written = model().model_dump(by_alias=True, mode="json", exclude_none=True)
        assert spec["default"] == written


@_each
def test_names_are_those_of_the_design(crd: Json) -> None:
    names = crd["spec"]["names"]
    short = {"NamedQueue": "nq", "QueueRedrive": "nqr"}
    assert names["shortNames"] == [short[names["kind"]]]
    assert names["categories"] == ["all"]
    assert crd["spec"]["scope"] == "Namespaced"
    assert crd["metadata"]["name"] == f"{names['plural']}.{crd['spec']['group']}"
    assert (crd["spec"]["group"], _version(crd)["name"]) == ("namedqueue.io", "v1alpha1")
    assert (_version(crd)["served"], _version(crd)["storage"]) == (True, True)


def test_a_named_queue_shows_the_columns_of_the_design() -> None:
    columns = _version(named_queue_crd())["additionalPrinterColumns"]
    wide = [column["name"] for column in columns if column.get("priority")]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == [
        "Ready",
        "Type",
        "Ready-jobs",
        "In-flight",
        "Waiting",
        "Dead",
        "Workers",
        "Age",
    ]
    assert wide == ["Broker", "Reason"]


@_each
def test_every_column_shows_a_field_that_exists(crd: Json) -> None:
    places = {at for at, _ in _nodes(_schema(crd))} | {".metadata.creationTimestamp"}
    for column in _version(crd)["additionalPrinterColumns"]:
        path: Any = column["jsonPath"].replace('[?(@.type=="Ready")]', "[]")
        assert path in places


def test_a_named_queue_has_status_and_scale() -> None:
    subresources = _version(named_queue_crd())["subresources"]
    places = {at for at, _ in _nodes(_schema(named_queue_crd()))}
    assert subresources["status"] == {}
    assert set(subresources["scale"].values()) <= places


def test_a_redrive_has_a_status() -> None:
    assert _version(queue_redrive_crd())["subresources"] == {"status": {}}
