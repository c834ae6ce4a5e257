"""Takes a picture of a terminal program: runs it in a terminal and draws the last screen.

hack/python hack/picture.py docs/pictures/demo.svg -- make demo
"""

import argparse
import os
import pty
import re
import select
import sys
import time
from io import StringIO
from itertools import groupby
from pathlib import Path

import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

COLUMNS, LINES = 110, 30
_TERMINAL = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}


def main() -> int:
    """Run the command, write the picture, and return the command's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("picture", type=Path)
    parser.add_argument("command", nargs="+")
    parser.add_argument("--seconds", type=float, default=120, help="the longest it may take")
    options = parser.parse_args()
    screen = pyte.Screen(COLUMNS, LINES)
    code = _run(options.command, screen, options.seconds)
    options.picture.write_text(_draw(screen, " ".join(options.command)))
    return code


def _run(command: list[str], screen: pyte.Screen, seconds: float) -> int:
    stream = pyte.ByteStream(screen)
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(_TERMINAL)
        os.execvp(command[0], command)  # noqa: S606  # the command is the developer's own
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            stream.feed(os.read(terminal, 65536))
        except OSError:  # the terminal is gone with its last program
            break
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _draw(screen: pyte.Screen, title: str) -> str:
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    lines = [_line(screen, row) for row in range(LINES)]
    while lines and not lines[-1].plain.strip():
        lines.pop()
    for line in lines:
        console.print(line, no_wrap=True, overflow="crop")
    drawn = console.export_svg(title=title, unique_id="picture")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)


def _line(screen: pyte.Screen, row: int) -> Text:
    cells = [screen.buffer[row][column] for column in range(COLUMNS)]
    runs = groupby(cells, key=lambda cell: (cell.fg, cell.bold))
    pieces = (("".join(cell.data for cell in run), _style(*look)) for look, run in runs)
    return Text.assemble(*pieces)


def _style(color: str, bold: bool) -> Style:
    return Style(color=None if color == "default" else _COLORS.get(color, color), bold=bold)


_COLORS = {"brown": "yellow", "brightblack": "bright_black"}

if __name__ == "__main__":
    sys.exit(main())
