"""The page of full runs: each run replaces its own parts, and only those."""

from fixtures.figures import page, parts

FIFO = "2026-11-18 03:08 UTC: 1 passed, 0 failed.\n\n`test_order`\n\n```text\n## not.a heading\n```"


def test_what_is_written_is_read_again() -> None:
    by_file = {"tests/broker/test_fifo.py": FIFO, "tests/unit/test_ladder.py": "none"}
    assert parts(page(by_file)) == by_file


def test_a_run_replaces_its_own_part_and_keeps_the_others() -> None:
    before = parts(page({"tests/b.py": "old", "tests/a.py": "kept"}))
    after = page(before | {"tests/b.py": "new"})
    assert "kept" in after
    assert "new" in after
    assert "old" not in after


def test_a_page_of_another_form_has_no_parts() -> None:
    assert parts("# The last full run\n\n`tests/broker/test_fifo.py::test_order`\n") == {}
