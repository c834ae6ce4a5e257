"""The documents hold together."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "README.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """Return a page without its blocks, in which brackets and hashes mean something else."""
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)


def links(page: Path) -> list[tuple[str, str]]:
    """Return where a page leads to within the repository: paths and anchors."""
    return re.findall(r"\]\(([^)#:]*)(?:#([^):]*))?\)", prose(page))


def anchors(page: Path) -> set[str]:
    """Return what can be linked to on a page, named as GitHub names it."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    for path, anchor in links(page):
        target = page.parent / path if path else page
        assert target.exists(), f"{_name(page)} links to {path}, which is not there"
        assert not anchor or anchor in anchors(target), f"{path} has no title for #{anchor}"


def test_the_index_leads_to_every_page_or_to_its_folder() -> None:
    reached = {(INDEX.parent / path).resolve() for path, _ in links(INDEX) if path}
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs") and page != INDEX]
    lost = [_name(page) for page in pages if not {page, page.parent} & reached]
    assert lost == [], "docs/README.md links to them nowhere"
