"""Read, on real files of every kind it knows."""

from __future__ import annotations

import json
import os
import struct
import zlib
from base64 import b64decode, b64encode
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parley.tools.base import InvalidInput, ToolOutput
from parley.tools.files.read import LONGEST_LINE_CHARS, MOST_CHARS, Read
from tests.helpers.tools import ToolHarness

PIXEL = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
LINE_CAP = 1_000_000


@pytest.fixture
def harness(tmp_path: Path) -> ToolHarness:
    return ToolHarness(tmp_path)


def read(harness: ToolHarness, name: str, **more: Any) -> ToolOutput:
    return harness.call(Read(), file_path=harness.path(name), **more)


def shown(harness: ToolHarness, name: str, **more: Any) -> str:
    content = read(harness, name, **more).content
    assert isinstance(content, str)
    return content


def file_of(result: ToolOutput) -> dict[str, Any]:
    return dict(result.detail["file"])


# Text.


def test_lines_come_after_their_numbers_and_the_empty_last_line_counts(harness: ToolHarness) -> None:
    harness.put("a.txt", "alpha\nbeta\n")
    assert read(harness, "a.txt") == ToolOutput(
        content="1\talpha\n2\tbeta\n3\t",
        detail={
            "type": "text",
            "file": {
                "filePath": harness.path("a.txt"),
                "content": "alpha\nbeta\n",
                "numLines": 3,
                "startLine": 1,
                "totalLines": 3,
            },
        },
    )


def test_a_file_without_a_final_newline_has_no_empty_last_line(harness: ToolHarness) -> None:
    harness.put("a.txt", "alpha\nbeta")
    assert shown(harness, "a.txt") == "1\talpha\n2\tbeta"


def test_offset_and_limit_choose_the_lines(harness: ToolHarness) -> None:
    harness.put("a.txt", "a\nb\nc\nd\n")
    result = read(harness, "a.txt", offset=2, limit=2)
    assert result.content == "2\tb\n3\tc"
    assert file_of(result) == {
        "filePath": harness.path("a.txt"),
        "content": "b\nc",
        "numLines": 2,
        "startLine": 2,
        "totalLines": 5,
    }


@pytest.mark.parametrize("offset", [0, -3])
def test_an_offset_before_the_file_means_its_beginning(harness: ToolHarness, offset: int) -> None:
    harness.put("a.txt", "a\nb")
    assert shown(harness, "a.txt", offset=offset) == "1\ta\n2\tb"


def test_an_offset_beyond_the_file_says_how_long_it_is(harness: ToolHarness) -> None:
    harness.put("a.txt", "a\nb")
    assert "has only 2 lines; offset 9 is beyond" in shown(harness, "a.txt", offset=9)


def test_a_limit_of_nothing_is_invalid(harness: ToolHarness) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        read(harness, "a.txt", limit=0)


def test_a_relative_path_is_taken_from_the_sessions_directory(harness: ToolHarness) -> None:
    harness.put("a.txt", "here")
    result = harness.call(Read(), file_path="a.txt")
    assert (result.content, file_of(result)["filePath"]) == ("1\there", harness.path("a.txt"))


def test_a_tilde_is_refused_instead_of_being_taken_for_a_folder(harness: ToolHarness) -> None:
    assert "absolute path" in harness.refusal(Read(), file_path="~/a.txt")


def test_a_long_file_comes_in_parts_and_says_how_to_read_on(harness: ToolHarness) -> None:
    harness.put("a.txt", "".join(f"line {number}\n" for number in range(1, 5001)))
    first = shown(harness, "a.txt")
    assert first.startswith("1\tline 1\n")
    assert "\n2000\tline 2000\n" in first
    assert "line 2001" not in first
    assert "(Lines 1 to 2000 of 5001 are shown. Continue with offset 2001.)" in first
    assert shown(harness, "a.txt", offset=2001).startswith("2001\tline 2001\n")


def test_all_parts_together_are_the_file(harness: ToolHarness) -> None:
    text = "".join(f"{number} {'x' * (number % 90)}\n" for number in range(9000))
    harness.put("a.txt", text)
    parts, offset = [], 1
    while True:
        file = file_of(read(harness, "a.txt", offset=offset))
        parts.append(file["content"])
        offset += file["numLines"]
        if offset > file["totalLines"]:
            break
    assert "\n".join(parts) == text
    assert len(parts) > 2


def test_wide_lines_run_out_of_room_before_the_limit(harness: ToolHarness) -> None:
    harness.put("a.txt", ("x" * 1000 + "\n") * 500)
    result = read(harness, "a.txt", limit=400)
    assert file_of(result)["truncatedByTokenCap"] is True
    assert len(file_of(result)["content"]) <= MOST_CHARS
    last = file_of(result)["numLines"]
    assert 50 < last < 400
    assert f"Continue with offset {last + 1}." in str(result.content)


def test_a_very_long_line_is_cut_and_said_to_be(harness: ToolHarness) -> None:
    harness.put("a.txt", "é" * 5_000 + "\nnext")
    text = shown(harness, "a.txt")
    first, second = text.split("\n")[:2]
    assert first == "1\t" + "é" * LONGEST_LINE_CHARS + "... (cut: the line has 10000 bytes)"
    assert second == "2\tnext"
    assert "Lines are cut after 2000 characters" in text


def test_an_empty_file_is_said_to_be_empty(harness: ToolHarness) -> None:
    harness.put("a.txt", "")
    result = read(harness, "a.txt")
    assert result.content == "(The file is empty.)"
    assert file_of(result) == {
        "filePath": harness.path("a.txt"),
        "content": "",
        "numLines": 0,
        "startLine": 1,
        "totalLines": 0,
    }


def test_only_line_feeds_end_lines(harness: ToolHarness) -> None:
    harness.put("a.txt", "a\u2028b\x0cc\rd\r\ne")
    assert shown(harness, "a.txt") == "1\ta\u2028b\x0cc\rd\n2\te"


def test_a_byte_order_mark_is_not_shown(harness: ToolHarness) -> None:
    harness.put("a.txt", b"\xef\xbb\xbfalpha\n")
    assert shown(harness, "a.txt") == "1\talpha\n2\t"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_read_by_its_mark(harness: ToolHarness, encoding: str) -> None:
    mark = "\ufeff".encode(encoding)
    harness.put("a.txt", mark + "größe 😀\r\nzwei".encode(encoding))
    assert shown(harness, "a.txt") == "1\tgröße 😀\n2\tzwei"


def test_an_unknown_encoding_is_shown_as_far_as_it_can_be_and_said_to_be(harness: ToolHarness) -> None:
    harness.put("a.txt", "caf\xe9\n".encode("latin-1"))
    text = shown(harness, "a.txt")
    assert text.startswith("1\tcaf\ufffd\n2\t\n")
    assert "neither UTF-8 nor UTF-16" in text


def test_a_character_on_the_border_of_two_checked_pieces_is_not_an_error(harness: ToolHarness) -> None:
    harness.put("a.txt", b"x\n" * (1 << 19) + b"\n" + "é".encode() * (1 << 19))
    assert "neither" not in shown(harness, "a.txt", limit=1)


@pytest.mark.parametrize(
    "data",
    [b"\x7fELF\x02\x01\x01" + bytes(64), bytes(range(1, 32)) * 8, b"\xff\xfe\0\0a\0\0\0"],
    ids=["program", "controls", "utf-32"],
)
def test_a_binary_file_is_refused_with_advice(harness: ToolHarness, data: bytes) -> None:
    harness.put("a.bin", data)
    assert "binary file" in harness.refusal(Read(), file_path=harness.path("a.bin"))


def test_a_folder_is_refused_and_a_missing_file_gets_near_names(harness: ToolHarness) -> None:
    harness.put("notes.txt", "x")
    (harness.folder / "sub").mkdir()
    assert "folder" in harness.refusal(Read(), file_path=harness.path("sub"))
    assert "notes.txt" in harness.refusal(Read(), file_path=harness.path("note.txt"))


def test_a_file_too_large_for_memory_is_refused(harness: ToolHarness) -> None:
    path = harness.put("a.log", "")
    os.truncate(path, 300 * 1024 * 1024)
    assert "too large" in harness.refusal(Read(), file_path=str(path))


# Images.


def png(width: int, height: int, body: bytes = b"") -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", body or zlib.compress(bytes(1 + 3 * width) * height, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xff\xc2\x00\x11\x08"
    + struct.pack(">HH", 20, 30)
    + b"\3" * 12
)
GIF = b"GIF89a" + struct.pack("<HH", 30, 20) + b"\0\0\0;"
WEBP = {
    "lossy": b"RIFF\0\0\0\0WEBPVP8 " + bytes(7) + b"\x9d\x01\x2a" + struct.pack("<HH", 30, 20),
    "lossless": b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 29 | 19 << 14),
    "extended": b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x1d\0\0\x13\0\0",
}


def test_an_image_comes_as_an_image(harness: ToolHarness) -> None:
    harness.put("p.png", PIXEL)
    data = b64encode(PIXEL).decode()
    assert read(harness, "p.png") == ToolOutput(
        content=[{"type": "image", "source": {"type": "base64", "data": data, "media_type": "image/png"}}],
        detail={
            "type": "image",
            "file": {
                "base64": data,
                "type": "image/png",
                "originalSize": len(PIXEL),
                "dimensions": {"originalWidth": 1, "originalHeight": 1, "displayWidth": 1, "displayHeight": 1},
            },
        },
    )


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(30, 20), "image/png"),
        (JPEG, "image/jpeg"),
        (GIF, "image/gif"),
        *((data, "image/webp") for data in WEBP.values()),
    ],
    ids=["png", "jpeg", "gif", *WEBP],
)
def test_kind_and_size_come_from_the_header_not_from_the_name(harness: ToolHarness, data: bytes, kind: str) -> None:
    harness.put("picture.dat", data)
    file = file_of(read(harness, "picture.dat"))
    assert (file["type"], file["dimensions"]["originalWidth"], file["dimensions"]["originalHeight"]) == (kind, 30, 20)


def test_an_image_with_a_broken_header_never_reaches_the_model(harness: ToolHarness) -> None:
    harness.put("p.jpg", JPEG[:12])
    assert "header is damaged" in harness.refusal(Read(), file_path=harness.path("p.jpg"))


def test_a_text_that_is_called_an_image_is_a_text(harness: ToolHarness) -> None:
    harness.put("p.png", "not a picture")
    assert shown(harness, "p.png") == "1\tnot a picture"


def noise(byte_count: int) -> bytes:
    return zlib.compress(os.urandom(byte_count), 0)


@pytest.mark.parametrize("byte_count", [100_000, 330_000, 360_000, 500_000])
def test_the_line_of_an_image_stays_below_the_cap(harness: ToolHarness, byte_count: int) -> None:
    harness.put("p.png", png(400, 300, noise(byte_count)))
    result = read(harness, "p.png")
    assert len(msgspec.json.encode([result.content, result.detail])) < LINE_CAP
    assert isinstance(result.content, list)


@pytest.mark.skipif(find_spec("PIL") is not None, reason="with Pillow it is scaled down")
@pytest.mark.parametrize("data", [png(400, 300, noise(700_000)), png(9000, 1)], ids=["bytes", "pixels"])
def test_an_image_too_large_for_a_model_is_refused_with_advice(harness: ToolHarness, data: bytes) -> None:
    harness.put("p.png", data)
    assert "Make a smaller copy" in harness.refusal(Read(), file_path=harness.path("p.png"))


@pytest.mark.skipif(find_spec("PIL") is None, reason="needs Pillow")
def test_an_image_too_large_for_a_model_is_scaled_down(harness: ToolHarness) -> None:
    harness.put("p.png", png(9000, 6000))
    result = read(harness, "p.png")
    size = file_of(result)["dimensions"]
    assert (size["originalWidth"], size["displayWidth"], size["displayHeight"]) == (9000, 2000, 1333)
    assert "scaled down from 9000x6000 to 2000x1333" in str(result.content)


# PDF.


def pdf(*texts: str) -> bytes:
    """A small PDF, one page for each text."""
    kids = " ".join(f"{3 + 2 * index} 0 R" for index in range(len(texts)))
    font = 3 + 2 * len(texts)
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(texts)} >>"]
    for index, text in enumerate(texts):
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 300 300] /Contents {4 + 2 * index} 0 R "
            f"/Resources << /Font << /F1 {font} 0 R >> >> >>"
        )
        stream = f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    objects.append("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    start = len(out)
    rows = "".join(f"{place:010} 00000 n \n" for place in places)
    table = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{rows}"
    return out + f"{table}trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()


def test_a_pdf_comes_as_the_text_of_its_pages(harness: ToolHarness) -> None:
    data = pdf("First words", "Second words")
    harness.put("a.pdf", data)
    assert read(harness, "a.pdf") == ToolOutput(
        content="Page 1 of 2:\nFirst words\n\nPage 2 of 2:\nSecond words",
        detail={
            "type": "pdf",
            "file": {
                "filePath": harness.path("a.pdf"),
                "base64": b64encode(data).decode(),
                "originalSize": len(data),
            },
        },
    )


@pytest.mark.parametrize(
    ("pages", "numbers"), [("3", [3]), ("2-4", [2, 3, 4]), ("24-", [24, 25]), (" 24 - 99 ", [24, 25])]
)
def test_pages_of_a_pdf_are_chosen_by_range(harness: ToolHarness, pages: str, numbers: list[int]) -> None:
    harness.put("a.pdf", pdf(*(f"text {number}" for number in range(1, 26))))
    expected = "\n\n".join(f"Page {number} of 25:\ntext {number}" for number in numbers)
    assert shown(harness, "a.pdf", pages=pages) == expected


def test_a_long_pdf_asks_for_a_range_of_at_most_twenty_pages(harness: ToolHarness) -> None:
    harness.put("a.pdf", pdf(*["x"] * 25))
    assert "has 25 pages" in harness.refusal(Read(), file_path=harness.path("a.pdf"))
    assert "21 pages are too many" in harness.refusal(Read(), file_path=harness.path("a.pdf"), pages="1-21")
    assert shown(harness, "a.pdf", pages="1-20").count("Page ") == 20


@pytest.mark.parametrize("pages", ["first", "0", "5-2", "26", "1,3"])
def test_pages_that_make_no_sense_are_refused(harness: ToolHarness, pages: str) -> None:
    harness.put("a.pdf", pdf(*["x"] * 25))
    assert "pages" in harness.refusal(Read(), file_path=harness.path("a.pdf"), pages=pages)


def test_a_page_without_text_is_said_to_have_none(harness: ToolHarness) -> None:
    harness.put("a.pdf", pdf(""))
    assert shown(harness, "a.pdf") == "Page 1 of 1:\n(no text; it may be a scan)"


def test_a_broken_pdf_is_refused_and_nothing_is_said_on_stderr(
    harness: ToolHarness, capfd: pytest.CaptureFixture[str]
) -> None:
    harness.put("a.pdf", pdf("text")[:150])
    assert "The PDF cannot be read" in harness.refusal(Read(), file_path=harness.path("a.pdf"))
    assert capfd.readouterr() == ("", "")


# Notebooks.


def book(*cells: dict[str, Any], **metadata: Any) -> str:
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def code(name: str, *source: str, outputs: Any = (), count: int | None = None) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": name,
        "metadata": {},
        "source": list(source),
        "outputs": list(outputs),
        "execution_count": count,
    }


def test_a_notebook_comes_as_its_cells(harness: ToolHarness) -> None:
    harness.put("n.ipynb", book(code("c1", "x=1\n"), language_info={"name": "python"}))
    assert read(harness, "n.ipynb") == ToolOutput(
        content=[{"type": "text", "text": '<cell id="c1">x=1\n</cell id="c1">'}],
        detail={
            "type": "notebook",
            "file": {
                "filePath": harness.path("n.ipynb"),
                "cells": [{"cellType": "code", "source": "x=1\n", "cell_id": "c1", "language": "python"}],
            },
        },
    )


def test_cells_come_with_their_outputs_texts_joined_and_images_between(harness: ToolHarness) -> None:
    picture = b64encode(PIXEL).decode()
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {"output_type": "display_data", "data": {"image/png": picture, "text/plain": "<Figure>"}},
        {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE\x1b[0m: v"]},
    ]
    markdown = {"cell_type": "markdown", "metadata": {}, "source": "# Title"}
    harness.put("n.ipynb", book(code("c1", "plot()", outputs=outputs, count=7), markdown))
    result = read(harness, "n.ipynb")
    assert result.content == [
        {
            "type": "text",
            "text": '<cell id="c1">plot()</cell id="c1">\n<output>one\ntwo\n</output>\n<output><Figure></output>',
        },
        {"type": "image", "source": {"type": "base64", "data": picture, "media_type": "image/png"}},
        {"type": "text", "text": '<output>E: v</output>\n<cell id="cell-1" type="markdown"># Title</cell id="cell-1">'},
    ]
    assert file_of(result)["cells"] == [
        {
            "cellType": "code",
            "source": "plot()",
            "cell_id": "c1",
            "language": "python",
            "execution_count": 7,
            "outputs": [
                {"output_type": "stream", "text": "one\ntwo\n"},
                {
                    "output_type": "display_data",
                    "image": {"image_data": picture, "media_type": "image/png"},
                    "text": "<Figure>",
                },
                {"output_type": "error", "text": "E: v"},
            ],
        },
        {"cellType": "markdown", "source": "# Title", "cell_id": "cell-1"},
    ]


def test_a_large_notebook_comes_in_parts_counted_in_cells(harness: ToolHarness) -> None:
    harness.put("n.ipynb", book(*(code(f"c{number}", "x" * 30_000) for number in range(10))))
    result = read(harness, "n.ipynb")
    assert isinstance(result.content, list)
    assert [cell["cell_id"] for cell in file_of(result)["cells"]] == ["c0", "c1", "c2"]
    assert result.content[-1]["text"] == "(Cells 1 to 3 of 10 are shown. Continue with offset 4.)"
    rest = read(harness, "n.ipynb", offset=4, limit=1)
    assert [cell["cell_id"] for cell in file_of(rest)["cells"]] == ["c3"]


def test_long_outputs_and_large_images_are_cut_so_that_the_line_fits(harness: ToolHarness) -> None:
    picture = b64encode(png(100, 100, noise(300_000))).decode()
    outputs = [
        {"output_type": "stream", "text": "y" * 50_000},
        {"output_type": "display_data", "data": {"image/png": picture}},
    ]
    harness.put("n.ipynb", book(code("c1", "go()", outputs=outputs)))
    result = read(harness, "n.ipynb")
    text = str(result.content)
    assert "(cut: the output has 50000 characters)" in text
    assert "(an image, too large to show)" in text
    assert len(msgspec.json.encode([result.content, result.detail])) < LINE_CAP


@pytest.mark.parametrize("content", ["{", "[1]", '{"cells": 5}', '{"cells": [5]}'])
def test_a_notebook_that_is_invalid_is_shown_as_text_with_a_word(harness: ToolHarness, content: str) -> None:
    harness.put("n.ipynb", content)
    text = shown(harness, "n.ipynb")
    assert text.startswith(f"1\t{content}\n\n(The file is not a valid notebook")
