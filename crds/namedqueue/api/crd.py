"""The CustomResourceDefinitions, made from the models.

Pydantic's JSON Schema becomes the structural schema that the API server wants: references
inlined, optional fields without null, and every rule's sentence with its place filled in. Nothing
is written here that a model already says.
"""

from typing import Any, TypeAlias

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from namedqueue.api import GROUP, VERSION
from namedqueue.api.namedqueue import NamedQueue
from namedqueue.api.redrive import QueueRedrive
from namedqueue.api.rules import VALIDATIONS, Model

Json: TypeAlias = dict[str, Any]

NO_FRACTION = "type(self) == int || type(self) == string"

_KEPT = (
    "type",
    "description",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "maxItems",
    "required",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
)


def named_queue_crd() -> Json:
    """Return the CRD of `NamedQueue`."""
    columns = [
        _column("Ready", "string", '.status.conditions[?(@.type=="Ready")].status'),
        _column("Type", "string", ".spec.type"),
        _column("Ready-jobs", "integer", ".status.depth.ready"),
        _column("In-flight", "integer", ".status.depth.inFlight"),
        _column("Waiting", "integer", ".status.depth.waiting"),
        _column("Dead", "integer", ".status.depth.dead"),
        _column("Workers", "integer", ".status.replicas"),
        _column("Broker", "string", ".status.broker", wide=True),
        _column("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
        _column("Age", "date", ".metadata.creationTimestamp"),
    ]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return _crd(NamedQueue, "namedqueues", "nq", columns, {"status": {}, "scale": scale})


def queue_redrive_crd() -> Json:
    """Return the CRD of `QueueRedrive`."""
    columns = [
        _column("Queue", "string", ".spec.queue"),
        _column("Phase", "string", ".status.phase"),
        _column("Matched", "integer", ".status.matched"),
        _column("Redriven", "integer", ".status.redriven"),
        _column("Remaining", "integer", ".status.remaining"),
        _column("Age", "date", ".metadata.creationTimestamp"),
    ]
    return _crd(QueueRedrive, "queueredrives", "nqr", columns, {"status": {}})


def _crd(
    model: type[Model], plural: str, short: str, columns: list[Json], subresources: Json
) -> Json:
    kind = model.__name__
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": structural_schema(model)},
                    "subresources": subresources,
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }


def _column(name: str, kind: str, path: str, *, wide: bool = False) -> Json:
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": 1} if wide else {})


def structural_schema(model: type[Model]) -> Json:
    """Return the schema of a whole resource; Kubernetes itself knows its metadata."""
    generated = model.model_json_schema(schema_generator=_WithWrittenDefaults)
    of_kubernetes = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
    }
    ours = {name: generated["properties"][name] for name in ("spec", "status")}
    required = [name for name in generated["required"] if name in ours]
    generated |= {"properties": of_kubernetes | ours, "required": required}
    return _structural(generated, generated["$defs"], at="")


def _structural(generated: Json, definitions: Json, at: str) -> Json:
    """Translate one generated schema, which sits at a place such as `spec.retry`."""
    raw = _inlined(generated, definitions)
    schema = {key: raw[key] for key in _KEPT if raw.get(key) not in (None, [])}
    if "exclusiveMinimum" in raw:
        schema |= {"minimum": raw["exclusiveMinimum"], "exclusiveMinimum": True}
    if "properties" in raw:
        schema["properties"] = {
            name: _structural(field, definitions, f"{at}.{name}" if at else name)
            for name, field in raw["properties"].items()
        }
    if "items" in raw:
        schema["items"] = _structural(raw["items"], definitions, f"{at}[]")
    rules = [
        {key: text.replace("{at}", at) for key, text in rule.items()}
        for rule in raw.get(VALIDATIONS, ())
    ]
    if raw.get("type") == "integer" or "x-kubernetes-int-or-string" in raw:
        # To the API server 99999.00001 is an integer, being near enough to one; not so to CEL.
        rules.append({"rule": NO_FRACTION, "message": f"{at} is not a whole number"})
    if rules:
        schema[VALIDATIONS] = rules
    if raw.get("default") is not None:
        schema["default"] = raw["default"]
    return schema


def _inlined(raw: Json, definitions: Json) -> Json:
    """Put the one real member of an optional field, or what a reference names, in its place.

    What stands beside it is about the field and wins over what the type says of itself.
    """
    members = [member for member in raw.get("anyOf", ()) if member != {"type": "null"}]
    if len(members) == 1:
        return _inlined(members[0], definitions) | raw
    named: Json = definitions[raw["$ref"].rpartition("/")[2]] if "$ref" in raw else {}
    return named | raw


class _WithWrittenDefaults(GenerateJsonSchema):
    """Gives each default in full, as a manifest writes it; rules are checked on defaults too."""

    def encode_default(self, dft: Any) -> Any:
        return TypeAdapter(type(dft)).dump_python(
            dft, mode="json", by_alias=True, exclude_none=True
        )
