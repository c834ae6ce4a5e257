"""How-tos that run on a laptop, followed as a reader would."""

import os
import re
import shutil
from pathlib import Path

import pytest

from fixtures.pages import ROOT, Reader, blocks, steps
from testbed.processes import wait_until

HOW_TOS = ROOT / "docs" / "how-to"
LANGUAGES = {"python": "python", "go": "go", "js": "node"}


def copied(text: str, folder: Path) -> Reader:
    """Save a page's manifest and its Python handler, if it has one, as the page calls them."""
    reader = Reader(folder)
    for kind, name in (("yaml", "queue.yaml"), ("python", "handler.py")):
        for block in blocks(text, kind):
            reader.write(name, block.text)
    return reader


@pytest.mark.parametrize("kind", LANGUAGES)
def test_a_handler_in_each_language_does_one_job_and_refuses_the_other(
    kind: str, tmp_path: Path
) -> None:
    if shutil.which(LANGUAGES[kind]) is None:
        missing = f"{LANGUAGES[kind]} is not on this machine; install it to try its handler"
        (pytest.fail if "CI" in os.environ else pytest.skip)(missing)
    text = (HOW_TOS / "handlers.md").read_text()
    commands = re.findall(r"^## \w+: `(.*)`$", text, re.MULTILINE)
    command = dict(zip(LANGUAGES, commands, strict=True))[kind]
    reader = copied(text, tmp_path)
    [handler] = blocks(text, kind)
    reader.write(command.split()[-1], handler.text)
    [send] = steps(text)
    with reader.running(command, app=True):
        reader.follow(send)
        greeting = "hello Ada at attempt 1"
        wait_until(lambda: greeting in reader.log(), what="Ada is greeted")


@pytest.mark.parametrize("page", ["order.md", "delay.md"])
def test_a_how_to_does_what_it_shows(page: str, tmp_path: Path) -> None:
    text = (HOW_TOS / page).read_text()
    run, act = steps(text)
    reader = copied(text, tmp_path)
    with reader.running(run.commands.strip(), app=" -- " in run.commands):
        reader.follow(act)


def test_a_task_of_celery_runs_as_a_handler(tmp_path: Path) -> None:
    text = (HOW_TOS / "from-celery.md").read_text()
    run, act = steps(text)
    reader = copied(text, tmp_path)
    with reader.running(run.commands.strip(), app=True):
        reader.follow(act)
        wait_until(lambda: "the sum is 5" in reader.log(), what="the task was done")


def test_the_page_for_users_of_rabbitmq_names_the_exchange_that_is_made(tmp_path: Path) -> None:
    text = (HOW_TOS / "from-rabbitmq.md").read_text()
    [look] = steps(text)
    copied(text, tmp_path).follow(look)
