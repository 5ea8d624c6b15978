"""The keyboard: reads keys one by one without echo, and restores the terminal whatever happens.

    with Keyboard(screen) as keyboard:
        with keyboard.asking():
            key = await keyboard.read()         KeyPress("up")
            editor.press(key)                   changes a `LineEditor`; Enter, Escape and the end of input do not

Keys that were pressed before a question was on the screen do not answer it: `asking` drops them. A paste is one key
with its text (bracketed paste): the line ends in it do not answer a question. Ctrl-C and Ctrl-Z send their signals as
usual. While the process is stopped (Ctrl-Z), the terminal is as the shell left it.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Self

from parley.protocol.base import Struct
from parley.terminal.interfaces.screen import Screen

PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"
SEQUENCE = re.compile("\x1b(\\[[0-9;?]*[ -/]*[@-~]|O[@-~]|[^\\[O\x1b])")
INCOMPLETE = re.compile("\x1b(\\[[0-9;?]*[ -/]*|O)?")
NAMES = {
    "\n": "enter",
    "\r": "enter",
    "\x1b\n": "newline",
    "\x1b\r": "newline",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x01": "home",
    "\x02": "left",
    "\x04": "end_of_input",
    "\x05": "end",
    "\x06": "right",
    "\x0b": "kill_right",
    "\x15": "kill_left",
    "\x17": "kill_word",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x10": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x0e": "down",
    "\x1b[D": "left",
    "\x1bOD": "left",
    "\x1b[C": "right",
    "\x1bOC": "right",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b[3~": "delete",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
}
"""Keys that are not text. Other control characters and sequences are ignored."""
PASTES_ON, PASTES_OFF = "\x1b[?2004h", "\x1b[?2004l"
ESCAPE_SECONDS = 0.05
"""How long the rest of a sequence may take: an Escape that is alone for longer was pressed as such."""
CHUNK_BYTES = 4096
LOCAL_MODES = 3
"""The index of the local modes in the attributes of a terminal."""


class KeyPress(Struct, frozen=True):
    """A key: its name and, for `text` and `paste`, what it adds."""

    name: str
    text: str = ""


class KeyDecoder:
    """Turns bytes from the terminal into keys."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    @property
    def waits(self) -> bool:
        """Whether an Escape may be the start of a sequence: call `flush` if nothing follows it."""
        return bool(self._rest) and not self._rest.startswith(PASTE_START)

    def flush(self) -> list[KeyPress]:
        """Nothing followed: the Escape was the key."""
        rest, self._rest = self._rest, ""
        return [KeyPress("escape")] if rest else []

    def feed(self, data: bytes) -> list[KeyPress]:
        text, self._rest = self._rest + self._decode(data), ""
        keys: list[KeyPress] = []
        while text:
            if text.startswith(PASTE_START):
                pasted, found, rest = text[len(PASTE_START) :].partition(PASTE_END)
                if not found:
                    self._rest = text
                    break
                keys.append(KeyPress("paste", pasted.replace("\r\n", "\n").replace("\r", "\n")))
                text = rest
            elif text[0] != "\x1b":
                keys += [] if (key := make_key(text[0])) is None else [key]
                text = text[1:]
            elif (sequence := SEQUENCE.match(text)) is not None:
                if sequence[0] in NAMES:
                    keys.append(KeyPress(NAMES[sequence[0]]))
                text = text[sequence.end() :]
            elif INCOMPLETE.fullmatch(text):
                self._rest = text
                break
            else:
                keys.append(KeyPress("escape"))
                text = text[1:]
        return keys


def make_key(char: str) -> KeyPress | None:
    if char in NAMES:
        return KeyPress(NAMES[char])
    return KeyPress("text", char) if char.isprintable() or char == "\t" else None


class LineEditor:
    """Text that is being typed, and the place of the cursor in it."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.at = len(text)

    def press(self, key: KeyPress) -> None:
        text, at = self.text, self.at
        match key.name:
            case "text" | "paste":
                self._replace(at, at, key.text)
            case "newline":
                self._replace(at, at, "\n")
            case "backspace":
                self._replace(max(0, at - 1), at)
            case "delete":
                self._replace(at, at + 1)
            case "left":
                self.at = max(0, at - 1)
            case "right":
                self.at = min(len(text), at + 1)
            case "home":
                self.at = text.rfind("\n", 0, at) + 1
            case "end":
                self.at = end_of_line(text, at)
            case "kill_right":
                self._replace(at, end_of_line(text, at))
            case "kill_left":
                self._replace(text.rfind("\n", 0, at) + 1, at)
            case "kill_word":
                kept = text[:at].rstrip()
                self._replace(max(kept.rfind(" "), kept.rfind("\n")) + 1, at)

    def _replace(self, start: int, end: int, text: str = "") -> None:
        self.text = self.text[:start] + text + self.text[end:]
        self.at = start + len(text)


def end_of_line(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


HANGUP = KeyPress("hangup")


def can_read_keys() -> bool:
    """Whether stdin is a terminal that this process may read: one in the background would be stopped."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


class Keyboard:
    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.on_key: Callable[[KeyPress], None] | None = None
        """Gets the keys that are pressed while nothing is asked."""
        self._decoder = KeyDecoder()
        self._keys: asyncio.Queue[KeyPress] = asyncio.Queue()
        self._is_asking = False
        self._is_gone = False
        """The terminal is closed."""
        self._timer: asyncio.TimerHandle | None = None
        self._saved = termios.tcgetattr(0)
        self._is_set = False

    def __enter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        signal.signal(signal.SIGTSTP, self._suspend)
        signal.signal(signal.SIGCONT, self._resume)
        self._set()
        self._loop.add_reader(0, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(0)
        for number in (signal.SIGTSTP, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
        self.restore()

    def _set(self) -> None:
        changed = termios.tcgetattr(0)
        changed[LOCAL_MODES] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(0, termios.TCSANOW, changed)
        self._is_set = True
        if self._screen.has_cursor:
            self._screen.write(PASTES_ON)

    def restore(self) -> None:
        """Restore the terminal. Also called from signal handlers, and more than once."""
        if self._is_set:
            self._is_set = False
            with suppress(termios.error):  # it may be closed
                termios.tcsetattr(0, termios.TCSANOW, self._saved)
            if self._screen.has_cursor:
                self._screen.write(PASTES_OFF)

    def _suspend(self, number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: the process stops here, unless no shell could continue it."""
        self.restore()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        signal.signal(number, self._suspend)
        self._resume()

    def _resume(self, *_: object) -> None:
        """The process continues: with the terminal, or in the background without it."""
        if not self._is_set and can_read_keys():
            self._set()
            self._loop.call_soon_threadsafe(self._screen.redraw)

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Queue the keys for `read`, beginning with the next that is pressed."""
        with suppress(termios.error):
            termios.tcflush(0, termios.TCIFLUSH)
        self._decoder, self._is_asking = KeyDecoder(), True
        if self._is_gone:
            self._keys.put_nowait(HANGUP)
        try:
            yield
        finally:
            self._is_asking = False
            self._keys = asyncio.Queue()

    async def read(self) -> KeyPress:
        """The next key; `hangup` once the terminal is gone."""
        return await self._keys.get()

    def _receive(self) -> None:
        try:
            data = os.read(0, CHUNK_BYTES)
        except OSError:
            data = b""
        if self._timer is not None:
            self._timer.cancel()
        if not data:
            self._is_gone = True
            self._loop.remove_reader(0)
            self._deliver([HANGUP])
            return
        self._deliver(self._decoder.feed(data))
        if self._decoder.waits:
            self._timer = self._loop.call_later(ESCAPE_SECONDS, lambda: self._deliver(self._decoder.flush()))

    def _deliver(self, keys: list[KeyPress]) -> None:
        for key in keys:
            if self._is_asking:
                self._keys.put_nowait(key)
            elif self.on_key is not None:
                self.on_key(key)
