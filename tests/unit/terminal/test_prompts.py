"""What goes into a prompt: pastes, images, the clipboard, earlier prompts."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from parley.terminal.prompts import MAX_IMAGE_BYTES, Pastes, PromptLog, save_image


def test_a_short_paste_is_text() -> None:
    assert Pastes().fold("one\r\ntwo\rthree") == "one\ntwo\nthree"


def test_a_long_paste_is_folded_and_sent_in_full() -> None:
    pastes, text = Pastes(), "\n".join(f"line {number}" for number in range(30))
    folded = pastes.fold(text)

    assert folded == "[pasted text 1: 30 lines]"
    assert pastes.fold("x" * 2000) == "[pasted text 2: 2,000 characters]"
    assert pastes.build_prompt(f"Look: {folded} [pasted text 9: 1 lines]") == f"Look: {text} [pasted text 9: 1 lines]"


def test_a_path_of_an_image_becomes_an_image(tmp_path: Path) -> None:
    pastes = Pastes()
    (tmp_path / "my shot.png").write_bytes(b"picture")
    (tmp_path / "b.JPG").write_bytes(b"other")
    first = pastes.fold(f"'{tmp_path}/my shot.png' file://{tmp_path}/b.JPG")

    assert first == "[image 1: my shot.png] [image 2: b.JPG] "
    assert pastes.build_prompt(f"What is in {first}") == [
        {"type": "text", "text": f"What is in {first}"},
        {"type": "image", "source": source("image/png", b"picture")},
        {"type": "image", "source": source("image/jpeg", b"other")},
    ]


def source(media_type: str, data: bytes) -> dict[str, str]:
    return {"type": "base64", "media_type": media_type, "data": base64.b64encode(data).decode()}


def test_other_paths_and_quotes_stay_text(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")

    for text in (f"{tmp_path}/notes.txt", f"{tmp_path}/missing.png", "it's", "shot.png"):
        assert Pastes().fold(text) == text


def test_an_image_that_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    pastes, path = Pastes(), tmp_path / "big.png"
    path.write_bytes(b"x" * (MAX_IMAGE_BYTES + 1))
    folded = pastes.fold(str(path))

    with pytest.raises(ValueError, match="at most 5,000,000 can be sent"):
        pastes.build_prompt(folded)
    path.unlink()
    with pytest.raises(ValueError, match="cannot read the image"):
        pastes.build_prompt(folded)


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


def test_prompts_are_read_newest_first_and_each_once(tmp_path: Path) -> None:
    log = PromptLog(tmp_path / "parley")
    for text in ("one", "two\nlines", "one", "three"):
        log.append(text)

    assert log.read() == ["three", "one", "two\nlines"]


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    PromptLog(tmp_path).append("secret")

    assert stat.S_IMODE((tmp_path / "history.jsonl").stat().st_mode) == 0o600


def test_a_damaged_or_missing_file_is_no_error(tmp_path: Path) -> None:
    log = PromptLog(tmp_path)
    assert log.read() == []
    (tmp_path / "history.jsonl").write_bytes(b'{"text": "good"}\n[1]\nno json\n{"text": 7}\n')

    assert log.read() == ["good"]
