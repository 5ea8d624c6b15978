"""An image on the clipboard of the desktop, which a terminal cannot paste: the usual programs write it to a file."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from parley.settings.secret_variables import without_secrets
from parley.workspace.search_path import find_trusted, with_trusted_path

PROGRAMS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
"""For Wayland, X11 and macOS."""
TIMEOUT_SECONDS = 5
SIGNATURE = b"\x89PNG"


async def save_image(folders: Sequence[str]) -> Path:
    """The file with the image, which a program in none of the folders reads.

    Raises ValueError if there is no image, or no program that can read it.
    """
    searched = [(find_trusted(name, os.environ, folders), words) for name, *words in PROGRAMS]
    found = [(program, *words) for program, words in searched if program is not None]
    if not found:
        names = ", ".join(program[0] for program in PROGRAMS)
        raise ValueError(f"cannot read the clipboard: none of {names} is installed; paste the path of the image")
    for program in found:
        data = await read_output(program, folders)
        if data.startswith(SIGNATURE):
            descriptor, path = tempfile.mkstemp(prefix="clipboard-", suffix=".png")
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            return Path(path)
    raise ValueError("there is no image on the clipboard")


async def read_output(program: tuple[str, ...], folders: Sequence[str]) -> bytes:
    """What a program prints; nothing if it fails."""
    process = await asyncio.create_subprocess_exec(
        *program,
        env=with_trusted_path(without_secrets(os.environ), folders),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        data, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return b""
    return data if process.returncode == 0 else b""
