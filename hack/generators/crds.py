"""The CRD manifests in `crds/`."""

import yaml

from namedqueue.api.crd import named_queue_crd, queue_redrive_crd

_HEADER = "# Made by `make generate` from crds/namedqueue/api. Do not edit.\n"


def files() -> dict[str, str]:
    """Return one manifest for each kind."""
    return {
        f"crds/{crd['spec']['names']['plural']}.yaml": _HEADER
        + yaml.safe_dump(crd, sort_keys=False, width=100, allow_unicode=True)
        for crd in (named_queue_crd(), queue_redrive_crd())
    }
