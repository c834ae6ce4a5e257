"""The part of Kubernetes' object metadata that the contract reads."""

import re
from typing import Any

from pydantic import ConfigDict, Field

from namedqueue.api.rules import Model, Rule

_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


class ObjectMeta(Model):
    """Names of an object; the rest of its metadata passes through unread."""

    model_config = ConfigDict(extra="ignore")

    name: str
    namespace: str = "default"
    generation: int = 0
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


def name_rule(longest: int) -> Rule:
    """Names become parts of broker objects, so they hold no dots and leave room for suffixes."""

    def holds(resource: Any) -> bool:
        name = resource.metadata.name
        return len(name) <= longest and re.fullmatch(_LABEL[1:-1], name) is not None

    return Rule(
        cel=f"size(self.metadata.name) <= {longest} && self.metadata.name.matches('{_LABEL}')",
        holds=holds,
        says="metadata.name ({self.metadata.name}) is not usable; write a DNS label of at most "
        f"{longest} lower-case letters, digits and inner dashes",
    )
