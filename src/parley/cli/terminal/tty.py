"""The keyboard: reads keys one by one without echo, and restores the terminal whatever happens.

    with Keyboard(marks_pastes=True, on_resume=screen.redraw) as keyboard:
        with keyboard.asking():
            key = await keyboard.read()

Keys that were pressed before a question was on the screen do not answer it: `asking` drops them. Ctrl-C and Ctrl-Z
send their signals as usual. While the process is stopped (Ctrl-Z), the terminal is as the shell left it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Self

from parley.cli.stdio import write
from parley.cli.terminal.keys import KeyDecoder, KeyPress

PASTES_ON, PASTES_OFF = b"\x1b[?2004h", b"\x1b[?2004l"
ESCAPE_SECONDS = 0.05
"""How long the rest of a sequence may take: an Escape that is alone for longer was pressed as such."""
CHUNK_BYTES = 4096
HANGUP = KeyPress("hangup")
LOCAL_MODES = 3
"""The index of the local modes in the attributes of a terminal."""


def can_read_keys() -> bool:
    """Whether stdin is a terminal that this process may read: one in the background would be stopped."""
    try:
        return os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


class Keyboard:
    def __init__(self, *, marks_pastes: bool, on_resume: Callable[[], None]) -> None:
        """`marks_pastes`: the terminal knows the sequence that asks for it."""
        self._marks_pastes = marks_pastes
        self.on_key: Callable[[KeyPress], None] | None = None
        """Gets the keys that are pressed while nothing is asked."""
        self._on_resume = on_resume
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
        if self._marks_pastes:
            write(PASTES_ON, raw=True)

    def restore(self) -> None:
        """Restore the terminal. Also called from signal handlers, and more than once."""
        if self._is_set:
            self._is_set = False
            with suppress(termios.error):  # it may be closed
                termios.tcsetattr(0, termios.TCSANOW, self._saved)
            if self._marks_pastes:
                write(PASTES_OFF, raw=True)

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
            self._loop.call_soon_threadsafe(self._on_resume)

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
