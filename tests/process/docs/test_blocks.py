"""Every code block of the documentation works as it stands (`tests/helpers/doc_blocks.py` says how)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from parley.permissions.rule import Rule, parse_rule
from parley.settings.base import ProjectTrust, SettingsLayer, Source
from parley.settings.merge import merge
from parley.testing.model_server import offline, running
from tests.helpers import doc_blocks, paths
from tests.helpers.doc_blocks import Block

BLOCKS = [block for page in doc_blocks.PAGES for block in doc_blocks.read_blocks(page)]
PAGES = sorted({block.page for block in BLOCKS if block.is_run})
FOREIGN = {"go": ["go", "run"], "ruby": ["ruby"], "php": ["php"]}
"""Languages without a package: their programs speak the bare protocol."""
NEEDS = {
    doc_blocks.PROVIDED,
    "a browser",
    "a chat completions server",
    "a cluster",
    "a key of OpenAI",
    "Docker and Harbor",
    "Docker and Inspect",
    "promptfoo",
    "claude-agent-sdk",
    "@anthropic-ai/claude-agent-sdk",
    "the network",
}
LANGUAGES = {
    "sh",
    "python",
    "json",
    "jsonl",
    "toml",
    "yaml",
    "text",
    "markdown",
    "mermaid",
    "diff",
    "js",
    *FOREIGN,
}


def name_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


def of_language(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run_in_order(tmp_path: Path, page: str) -> None:
    blocks = [block for block in BLOCKS if block.page == page]
    with running(offline(lambda: "msg_1")) as server:
        done = doc_blocks.run_page(blocks, tmp_path, {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "any"})

    assert done.failure == ""
    printed = {output.block.line: output.text for output in done.outputs}
    for block, shown in pairwise(blocks):
        if shown.language == "text" and shown.follows and block.is_run:
            assert doc_blocks.matches(shown.text, printed[block.line]), (
                f"{name_of(block)} printed:\n{printed[block.line]}"
            )


@pytest.mark.parametrize("block", of_language(*FOREIGN), ids=name_of)
def test_a_program_in_another_language_prints_what_the_page_shows(tmp_path: Path, block: Block) -> None:
    command = FOREIGN[block.language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    assert block.title is not None
    (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    done = subprocess.run(
        [*command, block.title],
        cwd=tmp_path,
        env=doc_blocks.make_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=doc_blocks.PAGE_SECONDS,
        check=False,
    )
    shown = next(each for each in BLOCKS if each.page == block.page and each.line > block.line)

    assert (done.returncode, done.stderr) == (0, "")
    assert doc_blocks.matches(shown.text, done.stdout)


def test_the_programs_that_a_newcomer_copies_pass_mypy(tmp_path: Path) -> None:
    # Our own environment does not have the official SDK.
    config = "[mypy]\nstrict = true\n[mypy-claude_agent_sdk.*]\nignore_missing_imports = true\n"
    (tmp_path / "mypy.ini").write_text(config, encoding="utf-8")
    pages = ["README.md", "docs/tutorial.md"]
    programs = [block for block in of_language("python") if block.page in pages]
    assert {block.page for block in programs} == set(pages)
    saved: dict[str, Block] = {}
    for block in programs:
        name = block.title or f"block_{block.line}.py"
        if name in saved:  # it replaces the file of an earlier one
            check_types(tmp_path, saved)
            saved.clear()
        (tmp_path / name).write_text(block.text, encoding="utf-8")
        saved[name] = block
    check_types(tmp_path, saved)


def check_types(folder: Path, saved: dict[str, Block]) -> None:
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(paths.MYPY_CACHE), *saved]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"{', '.join(map(name_of, saved.values()))}:\n{done.stdout}{done.stderr}"


def test_the_extension_of_the_how_to_page_can_be_installed_and_called(tmp_path: Path) -> None:
    page = [block for block in BLOCKS if block.page == "docs/how-to/write-an-extension.md"]
    for block in page:
        if block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    # As `pip install .`, but without the network and into a folder of its own.
    offline_flags = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *offline_flags, "--target", "installed", "."]
    subprocess.run(command, cwd=tmp_path, check=True)
    [call] = [block for block in page if block.language == "sh"]
    lines = [line for line in call.text.splitlines() if not doc_blocks.INSTALLS.match(line)]
    environment = {**doc_blocks.make_environment(tmp_path), "PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.stderr) == (page[-1].text, "")


@pytest.mark.parametrize("block", of_language("json", "jsonl", "toml"), ids=name_of)
def test_data_can_be_parsed(block: Block) -> None:
    if block.language == "toml":
        assert tomllib.loads(block.text)
    else:
        texts = block.text.splitlines() if block.language == "jsonl" else [block.text]
        assert all(isinstance(json.loads(text), dict) for text in texts)


SETTINGS = [
    block
    for block in of_language("json")
    if {"permissions", "hooks", "env", "limits", "models"} & set(json.loads(block.text))
]


@pytest.mark.parametrize("block", SETTINGS, ids=name_of)
def test_settings_are_understood(block: Block) -> None:
    source: Source = "managed" if block.title == "managed-settings.json" else "user"
    values = json.loads(block.text)
    layer = SettingsLayer(source=source, path=block.title or "", root="/", values=values, text=block.text.encode())
    merged = merge([layer], ProjectTrust())
    rules = [parse_rule(rule.text, rule.behavior, rule.source, rule.root) for rule in merged.rules]

    assert (merged.problems, merged.ignored) == ((), ())
    assert [rule for rule in rules if not isinstance(rule, Rule)] == []


def test_a_block_that_is_not_run_says_what_it_needs() -> None:
    code = of_language("sh", "python", "js")

    assert [name_of(block) for block in code if block.needs not in (None, *NEEDS)] == []


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.needs and not block.is_run], ids=name_of)
def test_a_block_that_is_not_run_has_no_syntax_error(block: Block) -> None:
    if block.language == "python":
        compile(block.text, name_of(block), "exec")
    elif block.language == "sh":
        subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)


def test_the_language_of_every_block_is_known() -> None:
    assert [name_of(block) for block in BLOCKS if block.language not in LANGUAGES] == []


def test_the_text_names_the_file_that_a_block_is_saved_as() -> None:
    """GitHub does not show the title of a block."""
    saved = [block for block in BLOCKS if block.title]

    assert [name_of(block) for block in saved if f"`{block.title}`" not in block.above] == []


def test_installation_commands_name_extras_and_targets_that_exist() -> None:
    lines = [(name_of(block), line) for block in of_language("sh") for line in block.text.splitlines()]
    wrong = [
        (at, problem)
        for at, line in lines
        if doc_blocks.INSTALLS.match(line)
        for problem in doc_blocks.check_installation(line)
    ]

    assert wrong == []


def test_a_block_that_fails_is_reported_with_its_line(tmp_path: Path) -> None:
    block = Block("page.md", 7, "sh", None, "echo before\nfalse\necho after\n", False, "")
    done = doc_blocks.run_page([block], tmp_path, {})

    assert done.failure == "page.md:7 ended with 1:\nbefore\n"


def test_an_ellipsis_in_an_output_stands_for_any_text() -> None:
    assert doc_blocks.matches("1 passed in ...s", "1 passed in 0.02s\n")
    assert not doc_blocks.matches("1 passed", "1 failed")
