"""The programs on the pages that need an official SDK print what the page shows."""

from __future__ import annotations

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.compat.harness import RUN_SECONDS, installed
from tests.compat.install import CURRENT_PYTHON, TYPESCRIPT, Client
from tests.helpers import doc_blocks
from tests.helpers.doc_blocks import Block

CLIENTS = {client.package: client for client in (CURRENT_PYTHON, TYPESCRIPT)}
BLOCKS = [
    (block, shown)
    for page in doc_blocks.PAGES
    for block, shown in pairwise(doc_blocks.read_blocks(page))
    if block.needs in CLIENTS and block.language in ("python", "js")
]


@pytest.mark.parametrize(("block", "shown"), BLOCKS, ids=[f"{block.page}:{block.line}" for block, _ in BLOCKS])
def test_a_program_with_an_official_sdk_prints_what_the_page_shows(tmp_path: Path, block: Block, shown: Block) -> None:
    assert block.needs is not None
    client = installed(CLIENTS[block.needs])
    done = subprocess.run(
        prepare(client, block, tmp_path),
        cwd=tmp_path,
        env=doc_blocks.make_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert doc_blocks.matches(shown.text, done.stdout)


def prepare(client: Client, block: Block, folder: Path) -> list[str]:
    """Save the program, and return the command that runs it."""
    program = client.program()
    assert program is not None
    name = block.title or "program.py"
    (folder / name).write_text(block.text, encoding="utf-8")
    if client.runs_with == "node":
        (folder / "node_modules").symlink_to(client.place / "node_modules")
    return [program, name]


def test_both_official_sdks_have_a_page() -> None:
    assert {block.needs for block, _ in BLOCKS} == set(CLIENTS)
