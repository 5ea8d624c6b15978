"""Commands and skills in files: names, frontmatter, and files that are skipped with a reason."""

from __future__ import annotations

from pathlib import Path

from parley.settings.base import PromptTemplate
from parley.settings.files.commands_and_skills import TemplateFolder, load_templates


def put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path = path.with_name(path.name + ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def found(*places: TemplateFolder) -> dict[str, PromptTemplate]:
    recipes, problems = load_templates(places)
    assert problems == []
    return {recipe.name: recipe for recipe in recipes}


def test_the_head_of_a_file_says_what_a_command_is(tmp_path: Path) -> None:
    text = (
        "---\ndescription: Say hello\nargument-hint: [who]\nallowed-tools: Read, Bash(git log:*)\nmodel: haiku\n"
        "disable-model-invocation: true\n---\nHello $1"
    )
    put(tmp_path, commands__hello=text)
    assert found(TemplateFolder(folder=str(tmp_path), source="user", is_trusted=True)) == {
        "hello": PromptTemplate(
            name="hello",
            kind="command",
            source="user",
            text="Hello $1",
            path=str(tmp_path / "commands" / "hello.md"),
            description="Say hello",
            hint="[who]",
            tools=("Read", "Bash(git log:*)"),
            model="haiku",
            model_invocable=False,
            is_trusted=True,
        )
    }


def test_folders_are_part_of_the_name_and_the_first_line_describes_what_has_no_head(tmp_path: Path) -> None:
    put(tmp_path, commands__web__build="# Build it\n\nNow.", skills__release__SKILL="Release.")
    recipes = found(TemplateFolder(folder=str(tmp_path), source="project", prefix="mine:"))
    assert {name: (recipe.kind, recipe.description) for name, recipe in recipes.items()} == {
        "mine:web:build": ("command", "Build it"),
        "mine:release": ("skill", "Release."),
    }


def test_the_persons_own_comes_before_the_projects_and_a_skill_before_a_command(tmp_path: Path) -> None:
    put(tmp_path / "user", commands__a="user", commands__b="command", skills__b__SKILL="skill")
    put(tmp_path / "tree", commands__b="tree", skills__a__SKILL="tree")
    places = [TemplateFolder(folder=str(tmp_path / name), source=name) for name in ("user", "tree")]
    assert {name: recipe.text for name, recipe in found(*places).items()} == {"a": "user", "b": "skill"}


def test_a_file_that_cannot_be_used_is_reported_and_the_rest_continues(tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("secret")
    tree = put(tmp_path / "tree", commands__broken="---\nno end", commands__fine="Fine.")
    put(tree, commands__odd="---\ndisable-model-invocation: perhaps\n---\nx")
    (tree / "commands" / "link.md").symlink_to(secret)
    (tree / "commands" / "a..b.md").write_text("x")
    (tree / "commands" / "binary.md").write_bytes(b"\xff\xfe")
    (tree / "skills" / "empty").mkdir(parents=True)
    recipes, problems = load_templates([TemplateFolder(folder=str(tree), source="project", beneath=(str(tree),))])
    assert [recipe.name for recipe in recipes] == ["fine"]
    assert {Path(problem.path).name: problem.text.partition(": ")[2][:30] for problem in problems} == {
        "a..b.md": "invalid name 'a..b' (use lette",
        "binary.md": "is not UTF-8 text",
        "broken.md": "the frontmatter starts with --",
        "link.md": "is a symbolic link to a file o",
        "odd.md": "disable-model-invocation must ",
    }
