"""Output styles."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.settings.base import OutputStyle
from parley.settings.files.output_styles import find_style


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for place in ("config", "project/.claude"):
        (tmp_path / place / "output-styles").mkdir(parents=True)
    return tmp_path / "project"


def write(folder: Path, text: str, name: str = "terse") -> None:
    (folder / "output-styles" / f"{name}.md").write_text(text)


def test_a_style_is_the_text_after_its_front_matter(project: Path, tmp_path: Path) -> None:
    write(tmp_path / "config", "---\nname: Terse\ndescription: short\n---\n\nBe brief.\n---\nAlways.\n")

    assert find_style("terse", tmp_path / "config", str(project), is_trusted=True) == OutputStyle(
        name="terse", text="Be brief.\n---\nAlways."
    )


def test_the_projects_style_comes_before_the_persons(project: Path, tmp_path: Path) -> None:
    write(tmp_path / "config", "The person's.")
    write(project / ".claude", "The project's.")

    assert find_style("terse", tmp_path / "config", str(project), is_trusted=True).text == "The project's."
    assert find_style("terse", tmp_path / "config", None, is_trusted=True).text == "The person's."


def test_the_default_style_is_not_a_file(project: Path, tmp_path: Path) -> None:
    write(project / ".claude", "Not this.", "default")

    assert find_style("default", tmp_path / "config", str(project), is_trusted=True) == OutputStyle()


@pytest.mark.parametrize("name", ["none", "../../../etc/passwd", "/etc/passwd", "", "a\nb", "x" * 65])
def test_a_style_that_is_not_there_is_reported_and_adds_no_text(project: Path, tmp_path: Path, name: str) -> None:
    style = find_style(name, tmp_path / "config", str(project), is_trusted=True)

    assert style.text == ""
    assert str(style.problem).startswith("settings: outputStyle: ")
    assert str(style.problem).isprintable()


def test_the_built_in_styles_have_texts_and_a_file_goes_before_them(project: Path, tmp_path: Path) -> None:
    config = tmp_path / "config"
    built_in = [find_style(name, config, str(project), is_trusted=True) for name in ("Explanatory", "Learning")]
    assert [(style.name, style.text != "", style.problem) for style in built_in] == [
        ("Explanatory", True, None),
        ("Learning", True, None),
    ]

    (project / ".claude" / "output-styles" / "Learning.md").write_text("Our own.")
    assert find_style("Learning", config, str(project), is_trusted=True).text == "Our own."


def test_an_unknown_name_is_passed_on_with_a_problem_that_lists_the_known_ones(project: Path, tmp_path: Path) -> None:
    style = find_style("Poetic", tmp_path / "config", str(project), is_trusted=True)

    assert (style.name, style.text) == ("Poetic", "")
    assert "choose from default, Explanatory, Learning" in str(style.problem)


def test_a_style_that_leads_out_of_the_project_is_not_read(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("hush")
    (project / ".claude" / "output-styles" / "terse.md").symlink_to(tmp_path / "secret.md")

    style = find_style("terse", tmp_path / "config", str(project), is_trusted=True)

    assert (style.text, "not used as a style" in str(style.problem)) == ("", True)
