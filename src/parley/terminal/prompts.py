"""What goes into a prompt besides typed text: earlier prompts, pastes, images, output of the person's own commands.

    pastes.fold("…200 lines…")            -> "[pasted text 1: 200 lines]"
    pastes.fold("/home/me/shot.png")      -> "[image 1: shot.png]"
    pastes.build_prompt(text)             -> the text, or content blocks if there are images

The prompts that were sent are in `parley/history.jsonl` of the configuration folder (`~/.claude`, or
CLAUDE_CONFIG_DIR), which only its owner can read. The next terminal offers them again.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shlex
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from parley.protocol.base import Json
from parley.settings.secret_variables import without_secrets
from parley.terminal.base import run_program
from parley.workspace.search_path import find_trusted, with_trusted_path

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
PROGRAMS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
"""For Wayland, X11 and macOS."""
TIMEOUT_SECONDS = 5
SIGNATURE = b"\x89PNG"
MAX_PROMPTS = 1_000
"""How many prompts of the history are loaded."""
READ_BYTES = 1_000_000
MAX_OUTPUT_CHARS = 20_000
"""How much of an output the model gets."""


class Pastes:
    """Long pastes and images: short placeholders while the prompt is edited, the content when it is sent."""

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


async def save_image(folders: Sequence[str]) -> Path:
    """The file with the image, which a program in none of the folders reads.

    Raises ValueError if there is no image, or no program that can read it.
    """
    searched = [(find_trusted(name, os.environ, folders), words) for name, *words in PROGRAMS]
    found = [(program, *words) for program, words in searched if program is not None]
    if not found:
        names = ", ".join(program[0] for program in PROGRAMS)
        raise ValueError(f"cannot read the clipboard: none of {names} is installed; paste the path of the image")
    environment = with_trusted_path(without_secrets(os.environ), folders)
    for program in found:
        try:
            code, data = await run_program(program, environment, TIMEOUT_SECONDS)
        except TimeoutError:
            continue
        if code == 0 and data.startswith(SIGNATURE):
            descriptor, path = tempfile.mkstemp(prefix="clipboard-", suffix=".png")
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            return Path(path)
    raise ValueError("there is no image on the clipboard")


def find_folder(environment: Mapping[str, str]) -> Path:
    """Where the files are."""
    given = environment.get("CLAUDE_CONFIG_DIR")
    return (Path(given) if given else Path.home() / ".claude") / "parley"


class PromptLog:
    """The prompts that were sent from terminals, oldest first in the file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "history.jsonl"

    def read(self) -> list[str]:
        """The last prompts, newest first, each once."""
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - READ_BYTES))
                lines = file.read().splitlines()
        except OSError:
            return []
        prompts: dict[str, None] = {}
        for line in reversed(lines):
            try:
                entry = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(entry, dict) and isinstance(entry.get("text"), str):
                prompts.setdefault(entry["text"])
        return list(prompts)[:MAX_PROMPTS]

    def append(self, text: str) -> None:
        from parley.workspace.private_files import open_file

        try:
            with os.fdopen(open_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "wb") as file:
                file.write(msgspec.json.encode({"text": text}) + b"\n")
        except OSError:
            return  # a prompt that cannot be remembered is sent all the same


class ShellCommand:
    """`!command`: a command of the person's own, on this machine. Its output is shown to the person and the model."""

    def __init__(self, command: str, cwd: str, print_line: Callable[[str], None]) -> None:
        self.command = command
        self._cwd = cwd
        self._print_line = print_line
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> str:
        """Run it to its end; returns what the model is told."""
        process = self._process = await asyncio.create_subprocess_shell(
            self.command,
            cwd=self._cwd,
            env=without_secrets(os.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
        assert process.stdout is not None
        kept: list[str] = []
        size = 0
        with suppress(ValueError):  # a line that is longer than the limit
            async for data in process.stdout:
                line = data.decode(errors="replace").rstrip("\r\n")
                self._print_line(line)
                if size < MAX_OUTPUT_CHARS:
                    kept.append(line)
                    size += len(line)
        code = await process.wait()
        output = "\n".join(kept)[:MAX_OUTPUT_CHARS]
        return f"I ran this command myself (exit code {code}):\n$ {self.command}\n{output}"

    def stop(self) -> None:
        """Kill it, and what it started."""
        if self._process is not None and self._process.returncode is None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
