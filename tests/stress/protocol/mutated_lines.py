"""Break the golden lines in every way we can think of and feed them to a connection.

    python -m tests.stress.protocol.mutated_lines --count 1000000 --seed 1

Whatever arrives, in whatever chunks: nothing is raised, every line that is not blank gives exactly
one message, and a message that is not refused can be spelled and read again. The seed decides all;
the exit code is 0 if the promise held and 1, with a traceback that names the batch, if it did not.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from parley.protocol.base import Message, Refused, Role, Unknown, decode, encode_json
from parley.protocol.connection import Connection, may_send
from parley.protocol.dialects.base import StreamJson
from parley.protocol.framing import BOM
from parley.protocol.messages.control import ControlRequest
from tests.helpers import paths

FOLDER = paths.GOLDEN
CAP_BYTES = 50_000
BATCH = 500
STRING = re.compile(r'"(?:[^"\\]|\\.)*"(:)?')

OTHER_VALUES = (
    b"null", b"true", b"0", b"-1", b"1.5", b"5.0", b'""', b'"text"', b"[]", b"{}", b"[null]", b'{"type":"text"}',
    b'{"subtype":"interrupt"}', b'[{"type":"tool_use"}]', b'"control_request"', b'"system"', b'"init"', b'"\\ud800"',
    b'"\\udc00\\ud83d\\ude00"', b'"\xe2\x80\xa8"', b'"\xf0\x9f\x98\x80"', b'"\xff"', b'"\xed\xa0\x80"', b'"\\q"',
    b'"\\u12"', b'"unclosed', b"nul", b"NaN", b"-Infinity", b"01", b"--1", b"1e", b"'text'", b"//", b"\x00",
)  # fmt: skip
HUGE_NUMBERS = (
    b"9007199254740993", b"18446744073709551616", b"-9223372036854775809", b"1e308", b"1e999", b"-1e-999", b"5e-324",
    b"9" * 50, b"9" * 5_000, b"0." + b"1" * 500, b"1E+400",
)  # fmt: skip
NESTS = tuple(
    opening * depth + closing * depth
    for depth in (10, 254, 255, 256, 257, 1_000, 20_000, 30_000)
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}"), (b"[", b""), (b'\\"', b"{"))
)
BLANKS = (b"", b" ", b"\r", b"\t \r", BOM, b"\n\n", b" " * (CAP_BYTES + 1))


@dataclass(frozen=True)
class Golden:
    """A golden line and where its members are: (begin of the key, begin of the value, end of the value)."""

    line: bytes
    members: tuple[tuple[int, int, int], ...]


def golden_lines() -> list[Golden]:
    found = []
    for name in ("catalogue", "seeds"):
        for row in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            line = json.dumps(json.loads(row)["line"], separators=(",", ":"))
            found.append(Golden(line.encode(), tuple(members(line))))
    return found


def members(line: str) -> Iterator[tuple[int, int, int]]:
    for string in STRING.finditer(line):
        if string[1]:
            yield string.start(), string.end(), json.JSONDecoder().raw_decode(line, string.end())[1]


class Dice(Random):
    """`Random` with what we throw most, made quick."""

    def below(self, end: int) -> int:
        return int(self.random() * end)


Mutation = Callable[[Dice, Golden, Golden], bytes]


def leave(dice: Dice, one: Golden, other: Golden) -> bytes:
    return one.line


def flip_bits(dice: Dice, one: Golden, other: Golden) -> bytes:
    line = bytearray(one.line)
    for _ in range(1 + dice.below(4)):
        line[dice.below(len(line))] ^= 1 << dice.below(8)
    return bytes(line)


def cut(dice: Dice, one: Golden, other: Golden) -> bytes:
    return one.line[: dice.below(len(one.line))] if dice.random() < 0.5 else one.line[dice.below(len(one.line)) :]


def cut_out(dice: Dice, one: Golden, other: Golden) -> bytes:
    begin = dice.below(len(one.line))
    return one.line[:begin] + one.line[begin + dice.below(20) :]


def splice(dice: Dice, one: Golden, other: Golden) -> bytes:
    return one.line[: dice.below(len(one.line))] + other.line[dice.below(len(other.line)) :]


def scatter_bytes(dice: Dice, one: Golden, other: Golden) -> bytes:
    at = dice.below(len(one.line))
    return one.line[:at] + dice.randbytes(1 + dice.below(8)) + one.line[at + dice.below(8) :]


def noise(dice: Dice, one: Golden, other: Golden) -> bytes:
    return dice.randbytes(dice.below(200))


def remove_key(dice: Dice, one: Golden, other: Golden) -> bytes:
    begin, _, end = one.members[dice.below(len(one.members))]
    comma = one.line[end : end + 1] == b","
    return one.line[:begin] + one.line[end + comma :]


def double_key(dice: Dice, one: Golden, other: Golden) -> bytes:
    begin, value, _ = one.members[dice.below(len(one.members))]
    return one.line[:value] + any_value(dice, other) + b"," + one.line[begin:]


def swap_value(dice: Dice, one: Golden, other: Golden) -> bytes:
    return put(dice, one, any_value(dice, other))


def nest_deeply(dice: Dice, one: Golden, other: Golden) -> bytes:
    return put(dice, one, NESTS[dice.below(len(NESTS))])


def grow_number(dice: Dice, one: Golden, other: Golden) -> bytes:
    return put(dice, one, HUGE_NUMBERS[dice.below(len(HUGE_NUMBERS))])


def blank(dice: Dice, one: Golden, other: Golden) -> bytes:
    return BLANKS[dice.below(len(BLANKS))]


def any_value(dice: Dice, other: Golden) -> bytes:
    if dice.random() < 0.7:
        return OTHER_VALUES[dice.below(len(OTHER_VALUES))]
    _, begin, end = other.members[dice.below(len(other.members))]
    return other.line[begin:end]


def put(dice: Dice, one: Golden, value: bytes) -> bytes:
    _, begin, end = one.members[dice.below(len(one.members))]
    return one.line[:begin] + value + one.line[end:]


# How often a mutation is chosen; the deep and the blank ones are slow or dull.
MUTATIONS: tuple[Mutation, ...] = (
    leave, flip_bits, flip_bits, cut, cut_out, splice, scatter_bytes, noise, remove_key, remove_key,
    double_key, double_key, swap_value, swap_value, swap_value, swap_value, grow_number, blank,
) * 3 + (nest_deeply,)  # fmt: skip


@dataclass
class Summary:
    lines: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        rate = self.lines / self.seconds if self.seconds else 0.0
        outcomes = ", ".join(f"{number:,} {name}" for name, number in self.outcomes.most_common())
        return f"{self.lines:,} lines in {self.seconds:.1f} s ({rate:,.0f} lines/s): {outcomes}; every promise held"


def run(count: int, seed: int) -> Summary:
    """Feed that many mutated lines. Raises whatever a connection raises, and AssertionError for a broken promise."""
    dice = Dice(seed)
    golden = golden_lines()
    questions = [message for one in golden if isinstance(message := decode(one.line), ControlRequest)]
    summary = Summary()
    started = time.perf_counter()
    while summary.lines < count:
        batch = [mutate(dice, golden) for _ in range(min(BATCH, count - summary.lines))]
        try:
            feed(dice, b"\n".join(batch), questions, summary.outcomes)
        except Exception as exc:
            exc.add_note(f"seed {seed}, in the {BATCH} lines after the first {summary.lines}")
            raise
        summary.lines += len(batch)
    summary.seconds = time.perf_counter() - started
    return summary


def mutate(dice: Dice, golden: list[Golden]) -> bytes:
    one, other = golden[dice.below(len(golden))], golden[dice.below(len(golden))]
    return MUTATIONS[dice.below(len(MUTATIONS))](dice, one, other)


def feed(dice: Dice, stream: bytes, questions: list[ControlRequest], outcomes: Counter[str]) -> None:
    """One connection's life: it asks its questions, then hears the stream."""
    connection = Connection(Role.ENGINE if dice.random() < 0.3 else Role.HOST, StreamJson(), CAP_BYTES)
    for question in questions:
        if may_send(connection.role, question) and question.request_id not in connection.our_requests:
            connection.send(question)
    received: list[Message] = []
    for chunk in chunks(dice, stream):
        received += connection.receive(chunk)
    received += connection.end()
    assert len(received) == lines_in(stream), f"{lines_in(stream)} lines gave {len(received)} messages"
    outcomes["blank"] += stream.count(b"\n") + 1 - len(received)
    for message in received:
        if isinstance(message, Refused):
            outcomes["refused"] += 1
            continue
        outcomes["unknown" if isinstance(message, Unknown) else "known"] += 1
        if not isinstance(message, Unknown) and dice.random() < 0.05:
            line = encode_json(message)
            assert encode_json(decode(line)) == line, f"{message} did not come back"


def chunks(dice: Dice, stream: bytes) -> Iterator[bytes]:
    most = (20, 500, 10_000, 200_000)[dice.below(4)] if len(stream) < 300_000 else 100_000
    begin = 0
    while begin < len(stream):
        end = begin + 1 + dice.below(most)
        yield stream[begin:end]
        begin = end


def lines_in(stream: bytes) -> int:
    """How many messages the stream must give, by a count of our own."""
    pieces = stream.removeprefix(BOM).split(b"\n")
    return sum(1 for piece in pieces if piece.strip(b" \t\r") or len(piece) > CAP_BYTES)


def main() -> int:
    parser = argparse.ArgumentParser(description="Feed mutated golden lines to a connection.")
    parser.add_argument("--count", type=int, default=1_000_000, help="how many lines")
    parser.add_argument("--seed", type=int, default=1, help="where the dice start")
    given = parser.parse_args()
    sys.stdout.write(f"{run(given.count, given.seed)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
