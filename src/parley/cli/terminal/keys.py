"""The keys that a person presses, and a line of text that is edited with them. Pure.

    decoder.feed(b"\\x1b[A")     -> [KeyPress("up")]
    editor.press(key)           -> changes the text; Enter, Escape and the end of input are the caller's

A paste is one key with its text (bracketed paste): the line ends in it neither send a prompt nor answer a question.
"""

from __future__ import annotations

import codecs
import re

from parley.protocol.base import Struct

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
}
"""Keys that are not text. Other control characters and sequences are ignored."""


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

    def __init__(self) -> None:
        self.text = ""
        self.at = 0

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
