"""The README's blocks, run as a reader would copy them."""

from pathlib import Path

from fixtures.pages import ROOT, Reader, blocks
from testbed.processes import wait_until

INSTALL_AND_TEST, FIRST_TERMINAL, SECOND_TERMINAL = (
    block.text.splitlines() for block in blocks((ROOT / "README.md").read_text(), "sh")[:3]
)


def test_the_readme_leads_with_exactly_two_commands() -> None:
    assert INSTALL_AND_TEST == ["make demo", "make test"]


def test_the_offline_commands_of_the_first_minute_work(tmp_path: Path) -> None:
    said = Reader(tmp_path).sh("\n".join(FIRST_TERMINAL[1:-1]))
    assert "NamedQueue shop/orders is valid" in said
    assert "nq.shop.orders.dlq" in said


def test_the_second_terminal_sees_a_dead_letter_and_sends_it_back(tmp_path: Path) -> None:
    *first, groups, redrive = SECOND_TERMINAL
    reader = Reader(tmp_path)
    with reader.running(FIRST_TERMINAL[-1], app=True):
        assert "orders" in reader.sh("\n".join(first))
        wait_until(
            lambda: "CARD_DECLINED" in reader.sh(groups), what="the declined card is a dead letter"
        )
        assert reader.sh(redrive) == '{"queue": "orders", "redriven": 1}\n'
