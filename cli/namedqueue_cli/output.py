"""How commands answer: a table for people, JSON or YAML for programs."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import click


def output_option(command: click.decorators.FC) -> click.decorators.FC:
    """Add `-o` to a command."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml"]),
        default="table",
        show_default=True,
        help="How to print.",
    )(command)


def show(output: str, document: Any, table: Callable[[], Any]) -> None:
    """Print a document in the form that was asked for."""
    if output == "json":
        click.echo(json.dumps(document, indent=2))
    elif output == "yaml":
        import yaml  # noqa: PLC0415  # only when asked for

        click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)
    else:
        from rich.console import Console  # noqa: PLC0415  # quick start for programs

        Console().print(table())


def make_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Any:
    """Return a table that shows every cell as it is; numbers stand to the right."""
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        made.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(str(cell)) for cell in row))
    return made
