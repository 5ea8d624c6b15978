"""Images in files, and as the model accepts them.

Type and size are read from the header. A model API refuses images that are too large, and a conversation with such an
image in its history cannot continue. Large images are scaled down if Pillow is installed, and refused otherwise.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from typing import Any

from parley.errors import ToolError
from parley.protocol.base import Json, Struct

MOST_BASE64 = 700_000
"""The limit of an image block; a larger one does not fit on a line."""
MOST_PIXELS_A_SIDE = 8_000
SIDES_TO_TRY = (2_000, 1_500, 1_000, 700, 400)
START_OF_FRAME = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
WITHOUT_LENGTH = {0x01, *range(0xD0, 0xDA)}
MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class Picture(Struct, frozen=True, kw_only=True):
    data: bytes
    media_type: str
    width: int
    height: int

    @property
    def base64(self) -> str:
        return b64encode(self.data).decode()

    @property
    def fits(self) -> bool:
        return len(self.data) * 4 / 3 <= MOST_BASE64 and max(self.width, self.height) <= MOST_PIXELS_A_SIDE

    @property
    def block(self) -> Json:
        return {"type": "image", "source": {"type": "base64", "data": self.base64, "media_type": self.media_type}}


def media_type(data: bytes) -> str | None:
    """The media type by the first bytes; None if models do not accept it."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in MAGIC if data.startswith(magic)), None)


def read_size(data: bytes, kind: str) -> Picture:
    """Raises ToolError if the header is broken."""
    width, height = SIZES[kind](data)
    if not width or not height:
        raise ToolError(f"The file starts like {kind} but its header is damaged; it is {len(data)} bytes long.")
    return Picture(data=data, media_type=kind, width=width, height=height)


def jpeg_size(data: bytes) -> tuple[int, int]:
    """Walks the segments to the one that starts the frame."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in START_OF_FRAME:
            return number(data[at + 7 : at + 9], "big"), number(data[at + 5 : at + 7], "big")
        if marker == 0xFF:
            at += 1
        else:
            at += 2 if marker in WITHOUT_LENGTH else 2 + max(2, number(data[at + 2 : at + 4], "big"))
    return 0, 0


def webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X" if len(data) >= 30:
            return 1 + number(data[24:27], "little"), 1 + number(data[27:30], "little")
        case b"VP8L" if len(data) >= 25:
            bits = number(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return number(data[26:28], "little") & 0x3FFF, number(data[28:30], "little") & 0x3FFF
    return 0, 0


SIZES: dict[str, Callable[[bytes], tuple[int, int]]] = {
    "image/png": lambda data: (number(data[16:20], "big"), number(data[20:24], "big")),
    "image/gif": lambda data: (number(data[6:8], "little"), number(data[8:10], "little")),
    "image/jpeg": jpeg_size,
    "image/webp": webp_size,
}


def number(data: bytes, order: Any) -> int:
    return int.from_bytes(data, order)


def fit_image(picture: Picture) -> Picture:
    """The image, scaled down if models would refuse it. Raises ToolError."""
    if picture.fits:
        return picture
    what = f"The image is too large ({picture.width}x{picture.height}, {len(picture.data)} bytes)"
    try:
        pillow = import_module("PIL.Image")
    except ImportError:
        raise ToolError(f"{what}. Make a smaller copy and read that, for instance with ImageMagick in Bash.") from None
    for side in SIDES_TO_TRY:
        smaller = scale_image(pillow, picture, side)
        if smaller.fits:
            return smaller
    raise ToolError(f"{what}, and could not be made small enough.")


def scale_image(pillow: Any, picture: Picture, side: int) -> Picture:
    """Raises ToolError if it cannot be decoded."""
    out = BytesIO()
    try:
        with pillow.open(BytesIO(picture.data)) as image:
            see_through = "A" in image.getbands() or "transparency" in image.info
            image.thumbnail((side, side))
            kind = "png" if see_through else "jpeg"
            image.convert("RGBA" if see_through else "RGB").save(out, kind)
            width, height = image.size
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as exc:
        raise ToolError(f"The image is too large to show and cannot be scaled down: {exc}") from None
    return Picture(data=out.getvalue(), media_type=f"image/{kind}", width=width, height=height)
