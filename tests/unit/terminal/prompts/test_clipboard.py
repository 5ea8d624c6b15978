"""Images on the clipboard, with programs of our own in place of those of a desktop."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.terminal.prompts import save_image


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    for name, script in scripts.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


async def test_the_first_program_with_an_image_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, wl_paste="exit 1", xclip="printf '\\211PNG picture'")
    path = await save_image([])

    assert path.read_bytes() == b"\x89PNG picture"
    path.unlink()


@pytest.mark.parametrize(
    ("scripts", "message"), [({}, "none of wl-paste, xclip"), ({"xclip": "echo text"}, "no image on the clipboard")]
)
async def test_without_an_image_the_reason_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scripts: dict[str, str], message: str
) -> None:
    install(tmp_path, monkeypatch, **scripts)

    with pytest.raises(ValueError, match=message):
        await save_image([])
