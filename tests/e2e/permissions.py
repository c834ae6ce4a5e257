"""What an account was granted, by the rules that a chart renders, and what it used of it.

A use is a request that the API server's audit log says was answered well. To apply an object that
is not there takes two permissions, and the log has only one verb for it: a patch that made
something counts as a creation too.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_CREATED, _FIRST_ERROR = 201, 400


class Access(NamedTuple):
    """A verb on a kind of object; no namespace and no name mean any."""

    namespace: str
    group: str
    resource: str
    name: str
    verb: str

    def __str__(self) -> str:
        kind = f"{self.resource}.{self.group}".rstrip(".")
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {kind} {self.name}".rstrip() + where

    def allows(self, use: "Access") -> bool:
        """Tell whether this is what a request needed."""
        limits = zip(self, use, strict=True)
        return all(limit in ("", asked) for limit, asked in limits) and self.group == use.group


def granted(objects: Sequence[Mapping[str, Any]], account: str) -> Iterator[Access]:
    """Yield every permission that rendered roles and bindings give to a service account."""
    roles = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
        if each["kind"] in ("Role", "ClusterRole")
    }
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        if account not in {subject["name"] for subject in binding["subjects"]}:
            continue
        namespace = binding["metadata"].get("namespace", "")
        reference = binding["roleRef"]
        within = namespace if reference["kind"] == "Role" else ""
        for rule in roles[reference["kind"], within, reference["name"]]["rules"]:
            yield from _accesses(rule, namespace)


def _accesses(rule: Mapping[str, Any], namespace: str) -> Iterator[Access]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                for verb in rule["verbs"]:
                    yield Access(namespace, group, resource, name, verb)


def used(log: Path, user: str) -> set[Access]:
    """Return what a user asked for and got, as the audit log has it."""
    found: set[Access] = set()
    for file in log.parent.glob(f"{log.stem}*{log.suffix}"):  # it is rotated
        with file.open() as lines:
            found |= set(_uses(lines, user))
    return found


def _uses(lines: Iterable[str], user: str) -> Iterator[Access]:
    for line in lines:
        if user not in line:
            continue
        event = json.loads(line)
        status = event.get("responseStatus", {}).get("code", _FIRST_ERROR)
        if event["user"]["username"] != user or status >= _FIRST_ERROR:
            continue
        what = event.get("objectRef", {})
        below = what.get("subresource")
        resource = what.get("resource", "") + (f"/{below}" if below else "")
        place = (what.get("namespace", ""), what.get("apiGroup", ""), resource)
        yield Access(*place, what.get("name", ""), event["verb"])
        if event["verb"] == "patch" and status == _CREATED:
            yield Access(*place, what.get("name", ""), "create")
