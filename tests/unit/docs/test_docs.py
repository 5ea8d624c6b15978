"""What the pages show is what runs: the programs of the guide are the examples, and the reference is current."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import gen_api
import gen_cli
import gen_conformance
import gen_gateway
import gen_hooks
import gen_parity
import gen_performance
import gen_permissions
import gen_prompts
import gen_protocol
import gen_reference
import gen_scale
import gen_settings
import gen_tools
import house
import pages
import pytest

from tests.helpers import paths

ROOT = paths.ROOT
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"<!-- (\w+\.py) -->\n```python[^\n]*\n(.*?)\n```", GUIDE, re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")


@pytest.mark.parametrize(("name", "code"), SNIPPETS, ids=[f"{name}-{at}" for at, (name, _) in enumerate(SNIPPETS)])
def test_a_program_of_the_guide_is_an_example(name: str, code: str) -> None:
    source = (ROOT / "examples" / name).read_text(encoding="utf-8")

    assert source.split('"""', 2)[2].strip() == code


def test_the_guide_has_no_other_code() -> None:
    assert GUIDE.count("```python") == len(SNIPPETS) > 15


def test_every_page_is_in_the_index() -> None:
    listed = set(LINK.findall((ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}

    assert {page for page in pages if not page.startswith(("reference/", "decisions/0"))} - {"index.md"} <= listed


def test_every_example_is_in_the_guide() -> None:
    programs = {path.name for path in (ROOT / "examples").glob("*.py")}

    assert programs == {name for name, _ in SNIPPETS}


GENERATORS = [
    gen_api.pages,
    gen_cli.pages,
    gen_conformance.pages,
    gen_gateway.pages,
    gen_hooks.pages,
    gen_performance.pages,
    gen_parity.pages,
    gen_permissions.pages,
    gen_prompts.pages,
    gen_protocol.pages,
    gen_reference.pages,
    gen_scale.pages,
    gen_settings.pages,
    gen_tools.pages,
]


MOST_WORDS = 54_000
"""Of all pages for users. A page that grows must shorten another."""
PLACEHOLDER = "`make docs` writes this part"


@pytest.mark.parametrize("generate", GENERATORS, ids=lambda generate: generate.__module__)
def test_a_generator_fills_its_pages_and_what_is_committed_is_current(generate: Callable[[], dict[str, str]]) -> None:
    for page, text in generate().items():
        if page.startswith("docs/"):
            assert text.strip(), page
            assert PLACEHOLDER not in text, page
        else:
            assert (ROOT / page).read_text(encoding="utf-8") == text, "run `make docs`"


def test_every_part_of_a_page_that_is_not_committed_has_a_generator() -> None:
    waiting = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if PLACEHOLDER in path.read_text(encoding="utf-8")
    }

    assert waiting <= {page for generate in GENERATORS for page in generate()}


def test_every_generator_is_checked() -> None:
    scripts = {path.stem for path in (ROOT / "scripts").glob("gen_*.py")}

    assert scripts == {generate.__module__ for generate in GENERATORS}


def test_a_generated_part_that_the_page_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        pages.fill("docs/hooks.md", {"nowhere": ""})


def test_a_generator_writes_its_pages_and_names_those_that_are_not_current(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generated = {"docs/one.md": "one\n", "src/two.json": "two\n"}

    assert pages.main(generated, [], tmp_path) == 0
    assert (tmp_path / "build/docs/one.md").read_text() == "one\n"
    assert pages.main(generated, ["--check"], tmp_path) == 0
    (tmp_path / "src/two.json").write_text("edited by hand\n")
    assert pages.main(generated, ["--check"], tmp_path) == 1
    assert capsys.readouterr().err == "src/two.json is not current; run `make docs`\n"


def test_the_front_stays_short() -> None:
    words = {name: house.count_words(text) for name, text in house.user_pages().items()}

    assert words["README.md"] <= 700
    assert words["CHANGELOG.md"] <= 600
    assert sum(words.values()) <= MOST_WORDS


def test_every_extra_is_in_the_table_of_the_install_page() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = [
        name for cell in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    ]

    assert set(project["optional-dependencies"]) - {"dev", "docs", "plots"} <= set(rows)


PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md")
)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = LINK.findall(path.read_text(encoding="utf-8"))

    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_lists_look_the_same_on_the_site_and_on_github(page: str) -> None:
    """The site needs four spaces before an item of an inner list, and a blank line before a list."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    item = r"(?:[-*]|\d+\.) "

    assert re.findall(rf"^ {{1,3}}{item}.*", text, re.MULTILINE) == []
    assert re.findall(rf"^(?! |{item}|<!--).+\n{item}.*", text, re.MULTILINE) == []
