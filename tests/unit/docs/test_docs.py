"""What the pages show is what runs: code in the guide is from programs that the tests run, the reference is current."""

from __future__ import annotations

import re

import pytest

from parley import reference
from tests.helpers import paths

ROOT = paths.ROOT
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"<!-- (\w+\.py) -->\n```python\n(.*?)\n```", GUIDE, re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")


@pytest.mark.parametrize(("name", "code"), SNIPPETS, ids=[f"{name}-{at}" for at, (name, _) in enumerate(SNIPPETS)])
def test_a_snippet_is_in_a_program_that_runs(name: str, code: str) -> None:
    source = (ROOT / "examples" / name).read_text(encoding="utf-8")

    assert [part for part in code.split("\n\n\n") if part not in source] == []


def test_the_guide_has_no_other_code() -> None:
    assert GUIDE.count("```python") == len(SNIPPETS) > 15


def test_the_readme_shows_the_first_example_and_programs_that_can_be_run() -> None:
    shown = re.findall(r"```python\n(.*?)\n```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    official, ours = shown
    compile(official, "README.md", "exec")

    assert "from claude_agent_sdk import" in official
    assert ours in (ROOT / "examples" / "ask.py").read_text(encoding="utf-8")


def test_every_example_is_in_the_guide() -> None:
    programs = {path.name for path in (ROOT / "examples").glob("*.py")}

    assert programs == {name for name, _ in SNIPPETS}


def test_the_reference_is_current() -> None:
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")

    assert written == reference.page(), "run `make docs`"


PAGES = ["README.md", "examples/README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    links = LINK.findall(path.read_text(encoding="utf-8"))

    assert [link for link in links if not (path.parent / link).exists()] == []
