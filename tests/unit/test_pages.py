"""Following a page: what its blocks ask for, and when an output is the one that it shows."""

import pytest

from fixtures.pages import Step, shows, steps

PAGE = """
```yaml
kind: NamedQueue
```
```sh
nq run x
```
and then
```sh
nq enqueue x '{}'
nq queues
```
```text
x 1
```
"""


def test_a_text_block_is_what_the_commands_before_it_print() -> None:
    assert steps(PAGE) == [
        Step("nq run x\n", None),
        Step("nq enqueue x '{}'\nnq queues\n", "x 1\n"),
    ]


@pytest.mark.parametrize("said", ["x  1\n", "\n x 1 ", "x\n1"])
def test_spaces_do_not_count(said: str) -> None:
    assert shows(said, "x 1\n")


@pytest.mark.parametrize("said", ["x 2", "x 1 2", "", "1 x"])
def test_everything_else_counts(said: str) -> None:
    assert not shows(said, "x 1\n")


def test_an_ellipsis_stands_for_anything_between_what_is_written() -> None:
    assert shows('{"id": "17", "queue": "x"}', '{"id": "…", "queue": "x"}')
    assert not shows('{"id": "17", "queue": "y"}', '{"id": "…", "queue": "x"}')
