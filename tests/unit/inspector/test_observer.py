from __future__ import annotations

import json
import re
import socket
import time
from typing import Any

import pytest

from parley.inspector.observer import LineObserver
from parley.inspector.relay import CLIENT, ENDED, ENGINE, FRAME, LOST, NUMBER, STARTED, STDERR
from parley.stores.wire_recording import KeptLine
from parley.stores.wire_redaction import WireRedactor, clean_command

KEY = "sk-abcdefghijklmnopqrstuvwxyz"
REDACTOR = WireRedactor({"MY_TOKEN": "open-sesame"})


class Kept:
    """Keeps what an observer gives it."""

    def __init__(self, error: OSError | None = None) -> None:
        self.lines: list[KeptLine] = []
        self.exit_code: int | None = None
        self._error = error

    def add(self, line: KeptLine) -> None:
        if self._error is not None:
            raise self._error
        self.lines.append(line)

    def end(self, at: float, exit_code: int) -> None:
        self.exit_code = exit_code

    def close(self) -> None:
        pass


def observe(*frames: tuple[int, bytes], kept: Kept | None = None, age: float = 0.0) -> tuple[list[str], Kept]:
    """What is shown and kept of frames that came so many seconds ago."""
    shown: list[str] = []
    keeper = kept or Kept()
    ours, theirs = socket.socketpair()
    now = time.monotonic() - age
    data = b"".join(FRAME.pack(kind, now, len(part)) + part for kind, part in ((STARTED, b""), *frames))
    with ours, theirs:
        ours.sendall(data)
        ours.shutdown(socket.SHUT_WR)
        LineObserver(shown.append, [keeper], REDACTOR).run(theirs)
    return shown, keeper


def line(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def delta(text: str) -> bytes:
    event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    return line({"type": "stream_event", "event": event})


STOP = line({"type": "stream_event", "event": {"type": "content_block_stop", "index": 0}})
ASK = line({"type": "control_request", "request_id": "a", "request": {"subtype": "initialize"}})


def test_lines_are_put_together_from_pieces_and_numbered_as_in_the_recording() -> None:
    shown, kept = observe((ENGINE, b'{"type":'), (CLIENT, ASK), (ENGINE, b'"keep_alive"}\nhalf'), (ENGINE, b""))

    assert [(each.record[0], each.data, each.eol, each.eof) for each in kept.lines] == [
        (2, ASK[:-1], True, False),
        (3, b'{"type":"keep_alive"}', True, False),
        (4, b"half", False, False),
        (5, b"", True, True),
    ]
    assert [text.split("#")[1][:1] for text in shown[:3]] == ["2", "3", "4"]


def test_a_secret_in_several_events_is_not_kept() -> None:
    pieces = [delta(KEY[at : at + 5]) for at in range(0, len(KEY), 5)]
    shown, kept = observe((ENGINE, b"".join(pieces[:2])), (ENGINE, b"".join(pieces[2:])), (ENGINE, STOP))

    text = "".join(json.loads(each.data)["event"].get("delta", {}).get("text", "") for each in kept.lines)
    assert text == "[redacted]"
    assert not any(KEY[:10] in each for each in shown)


def test_a_secret_on_stderr_or_in_garbage_is_neither_kept_nor_shown() -> None:
    shown, kept = observe((STDERR, b"open-sesame\n"), (ENGINE, b"oops open-sesame \x1b[2J\n"))

    assert [each.data for each in kept.lines] == [b"[redacted]", b"oops [redacted] \x1b[2J"]
    assert "stderr: [redacted]" in shown[0]
    assert "not JSON: oops [redacted] ·[2J" in shown[1]


def test_a_request_that_waits_is_named_with_its_age() -> None:
    shown, _ = observe((CLIENT, ASK), age=40.0)

    text = "\n".join(shown)
    assert re.search(r"… #2 control_request initialize has waited \d+ s for the engine", text)
    assert re.search(r"without an answer: #2 control_request initialize, [\d.]+ s, from the client", text)


def test_a_full_disk_does_not_stop_what_is_shown() -> None:
    kept = Kept(OSError(28, "No space left on device"))
    shown, _ = observe((CLIENT, ASK), (CLIENT, ASK), kept=kept)

    assert shown.count("cannot record any more: No space left on device; the conversation continues") == 1
    assert len([text for text in shown if "→ #" in text]) == 2


def test_what_was_lost_and_the_exit_code_are_said() -> None:
    shown, kept = observe((LOST, NUMBER.pack(7)), (ENDED, NUMBER.pack(-9)))

    assert shown[0].startswith("7 bytes were passed on but not recorded")
    assert shown[1].endswith("the engine was ended by signal 9")
    assert kept.exit_code == -9


@pytest.mark.parametrize(
    ("words", "clean"),
    [
        (["claude", "--print", "hi"], ["claude", "--print", "hi"]),
        (["claude", "--api-key", "mine", "hi"], ["claude", "--api-key", "[redacted]", "hi"]),
        (["claude", "--api-key=mine"], ["claude", "--api-key=[redacted]"]),
        (["claude", '--settings={"apiKey":"mine"}'], ["claude", '--settings={"apiKey":"[redacted]"}']),
        (
            ["claude", "--settings", '{"env":{"A_TOKEN":"x"}}'],
            ["claude", "--settings", '{"env":{"A_TOKEN":"[redacted]"}}'],
        ),
        (["claude", KEY], ["claude", "[redacted]"]),
    ],
)
def test_the_command_is_recorded_without_secrets(words: list[str], clean: list[str]) -> None:
    assert list(clean_command(words, REDACTOR.redact_text)) == clean
