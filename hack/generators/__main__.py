"""`hack/generate [--check]`: write every generated file, or say which ones are stale."""

import argparse
import sys
from pathlib import Path

from generators import chart, commands, crds, fields, http, metrics

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Write or check; 1 means that something committed is not what its source says."""
    parser = argparse.ArgumentParser(prog="hack/generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail on drift")
    check = parser.parse_args().check
    sources = (crds, fields, chart, commands, http, metrics)
    wanted = {path: text for source in sources for path, text in source.files().items()}
    stale = [path for path, text in wanted.items() if _current(path) != text]
    for path in stale:
        if not check:
            ROOT.joinpath(path).write_text(wanted[path])
        print(f"{path}: {'differs from its source; run make generate' if check else 'written'}")
    return 1 if check and stale else 0


def _current(path: str) -> str | None:
    file = ROOT / path
    return file.read_text() if file.exists() else None


if __name__ == "__main__":
    sys.exit(main())
