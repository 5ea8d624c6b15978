"""Long pastes and images in a prompt: short placeholders while it is edited, the content when it is sent.

pastes.fold("…200 lines…")            -> "[pasted text 1: 200 lines]"
pastes.fold("/home/me/shot.png")      -> "[image 1: shot.png]"
pastes.build_prompt(text)             -> the text, or content blocks if there are images
"""

from __future__ import annotations

import base64
import re
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from parley.protocol.base import Json

MAX_LINES = 8
MAX_CHARS = 1_000
"""A longer paste is folded."""
MAX_IMAGE_BYTES = 5_000_000
MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
}
PLACEHOLDER = re.compile(r"\[(pasted text|image) (\d+)(?:: [^\]\n]*)?\]")


class Pastes:
    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._images: dict[str, Path] = {}

    def fold(self, pasted: str) -> str:
        """What a paste adds to the prompt."""
        text = pasted.replace("\r\n", "\n").replace("\r", "\n")
        if images := find_images(text):
            return " ".join(self.add_image(path) for path in images) + " "
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= MAX_LINES and len(text) <= MAX_CHARS:
            return text
        number = str(len(self._texts) + 1)
        self._texts[number] = text
        size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[pasted text {number}: {size}]"

    def add_image(self, path: Path) -> str:
        """The placeholder of an image."""
        number = str(len(self._images) + 1)
        self._images[number] = path
        return f"[image {number}: {re.sub(r'[^ -Z^-~]', '_', path.name)}]"

    def expand(self, text: str) -> str:
        """The prompt with the pasted texts in it."""

        def replace(found: re.Match[str]) -> str:
            return self._texts.get(found[2], found[0]) if found[1] == "pasted text" else found[0]

        return PLACEHOLDER.sub(replace, text)

    def build_prompt(self, text: str) -> str | list[Json]:
        """What is sent. Raises ValueError for an image that cannot be read."""
        named = [found[2] for found in PLACEHOLDER.finditer(text) if found[1] == "image" and found[2] in self._images]
        expanded = self.expand(text)
        if not named:
            return expanded
        images = [read_image(self._images[number]) for number in dict.fromkeys(named)]
        return [{"type": "text", "text": expanded}, *images]


def find_images(text: str) -> list[Path]:
    """The images that a paste names: a terminal pastes the paths of files that are dropped on it."""
    try:
        words = shlex.split(text) if len(text) < MAX_CHARS and "\n" not in text.strip() else []
    except ValueError:
        return []
    paths = [Path(unquote(urlsplit(word).path) if word.startswith("file://") else word).expanduser() for word in words]
    try:
        is_all = all(path.is_absolute() and path.suffix.lower() in MEDIA_TYPES and path.is_file() for path in paths)
    except OSError:
        return []
    return paths if is_all else []


def read_image(path: Path) -> Json:
    """The content block of an image. Raises ValueError."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise ValueError(f"cannot read the image {path}: {exc.strerror}") from None
    if len(data) > MAX_IMAGE_BYTES:
        raise ValueError(f"the image {path} has {len(data):,} bytes; at most {MAX_IMAGE_BYTES:,} can be sent")
    source = {
        "type": "base64",
        "media_type": MEDIA_TYPES[path.suffix.lower()],
        "data": base64.b64encode(data).decode(),
    }
    return {"type": "image", "source": source}
