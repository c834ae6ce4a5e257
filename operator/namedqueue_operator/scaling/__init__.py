"""How many replicas a queue's workers shall have: decisions over what was seen, and nothing else.

`policies` is what the manifest says, `windows` what was seen lately, `rates` what a window tells
about speed, and `deciding` makes of them a count with its reason. All of it is pure.
"""

from namedqueue_operator.scaling.deciding import Decision, Reason, decide
from namedqueue_operator.scaling.policies import Policy, policy_of
from namedqueue_operator.scaling.windows import SETTLED_SECONDS, Sample, Window

__all__ = [
    "SETTLED_SECONDS",
    "Decision",
    "Policy",
    "Reason",
    "Sample",
    "Window",
    "decide",
    "policy_of",
]
