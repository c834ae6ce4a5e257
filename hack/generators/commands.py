"""The reference of `nq` in `docs/reference/`, in the words of its own help."""

from collections.abc import Iterator

import click

from namedqueue_cli.main import nq

_HEADER = "<!-- Made by `make generate` from cli/namedqueue_cli. Do not edit. -->\n\n"
_WIDTH = 100


def files() -> dict[str, str]:
    """Return one page for all commands."""
    intro = "# Commands of `nq`\n\nAlso installed as `kubectl nq`.\n"
    return {"docs/reference/cli.md": _HEADER + intro + "".join(_sections(nq, "nq", None))}


def _sections(command: click.Command, name: str, parent: click.Context | None) -> Iterator[str]:
    """Yield what a command says of itself, then the same of each command below it."""
    settings = {**command.context_settings, "terminal_width": _WIDTH}
    context = click.Context(command, parent, info_name=name, **settings)
    lines = [line.rstrip() for line in command.get_help(context).splitlines()]
    yield "\n".join(["", f"## `{context.command_path}`", "", "```text", *lines, "```", ""])
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None:
                yield from _sections(found, below, context)
