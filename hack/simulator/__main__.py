"""`hack/simulate`: run every trace under every autoscaler; write the page and the picture."""

import sys
from pathlib import Path

from simulator import pages
from simulator.autoscalers import contestants
from simulator.traces import traces
from simulator.worlds import World

_DOCS = Path(__file__).parents[2] / "docs"


def main() -> int:
    """Compare, and write it down."""
    chosen = traces()
    results = {}
    for trace in chosen:
        results[trace.name] = {each.name: World(trace, each).run() for each in contestants()}
        for name, outcome in results[trace.name].items():
            print(
                f"{trace.name:12} {name:36} wait {pages.mean_wait(outcome):7.2f} s, "
                f"p99 {outcome.wait(0.99):6.1f} s, {outcome.pod_seconds:8.0f} pod-seconds, "
                f"{outcome.flaps} flaps, {outcome.interrupted} interrupted"
            )
    (_DOCS / "scaling.md").write_text(pages.page(chosen, results))
    pages.picture(chosen, results, _DOCS / "pictures" / "scaling.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
