"""Damage transcripts in every way a disk and other programs know, and read them.

    python -m tests.stress.stores.damaged_logs --logs 100000 --seed 1

What is read must be an exact beginning of what was written (lines of others between ours aside), or the
session is refused with a way out. Never anything else, and never a traceback. After a beginning was read,
the session must take another entry, and give it back.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from parley.errors import DamagedSession
from parley.protocol.base import Json
from parley.stores.base import Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.files.store import ClaudeStore

SESSION = "11111111-1111-4111-8111-111111111111"
KINDS = ("user", "assistant", "assistant", "usage", "result", "permission", "prompt")
FOREIGN = (
    b'{"type":"custom-title","customTitle":"T","sessionId":"x"}',
    b'{"type":"summary","summary":"s"}',
    b"null",
    b"[1,2]",
    b"",
)


class Wrong(Exception):
    """A log was read as something it is not."""


def entry(seq: int, dice: Random) -> Entry:
    kind = dice.choice(KINDS)
    text = "".join(chr(dice.choice((65, 0x20AC, 0x1F600, 34, 92, 10))) for _ in range(dice.randrange(80)))
    message: Json = {"text": text, "seq": seq} if kind != "usage" else {"id": "msg_1", "stop_reason": "end_turn"}
    if kind in ("user", "assistant"):
        content = [{"type": "text", "text": text}]
        # Some are blocks of an answer that is not finished: their lines follow later.
        answer = {"id": "msg_1", "stop_reason": None} if kind == "assistant" and dice.random() < 0.7 else {}
        message = {
            "type": kind,
            "message": {"role": kind, "content": content, **answer},
            "uuid": f"00000000-0000-4000-8000-{seq:012}",
            "session_id": SESSION,
            "timestamp": "2026-01-01T00:00:00.000Z",
            "parent_tool_use_id": None,
        }
    return Entry(seq=seq, kind=kind, at="2026-01-01T00:00:00.000Z", message=message)


def cut(data: bytes, dice: Random) -> bytes:
    return data[: dice.randrange(len(data))]


def flip(data: bytes, dice: Random) -> bytes:
    spoilt = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 9))):
        spoilt[dice.randrange(len(spoilt))] ^= 1 << dice.randrange(8)
    return bytes(spoilt)


def zero(data: bytes, dice: Random) -> bytes:
    sector = dice.randrange(-(-len(data) // 512)) * 512
    return data[:sector] + bytes(min(512, len(data) - sector)) + data[sector + 512 :]


def lines_moved(data: bytes, dice: Random) -> bytes:
    lines = data.splitlines()
    at, to = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.randrange(3):
        case 0:
            del lines[at]
        case 1:
            lines.insert(to, lines[at])
        case _:
            lines[at], lines[to] = lines[to], lines[at]
    return b"".join(line + b"\n" for line in lines)


def foreign(data: bytes, dice: Random) -> bytes:
    lines = data.split(b"\n")[:-1]
    for _ in range(dice.randrange(1, 4)):
        lines.insert(dice.randrange(len(lines) + 1), dice.choice(FOREIGN))
    return b"".join(line + b"\n" for line in lines)


def rewritten(data: bytes, dice: Random) -> bytes:
    """As a database gives it back that keeps no order of fields. What is no JSON it would not take."""
    lines = data.split(b"\n")[:-1]
    for at in dice.sample(range(len(lines)), dice.randrange(len(lines) + 1)):
        try:
            lines[at] = json.dumps(json.loads(lines[at]), sort_keys=True).encode()
        except ValueError:
            continue
    return b"".join(line + b"\n" for line in lines)


def twice(data: bytes, dice: Random) -> bytes:
    return dice.choice(DAMAGES[:-1])(dice.choice(DAMAGES[:-1])(data, dice) or b"\n", dice)


DAMAGES: tuple[Callable[[bytes, Random], bytes], ...] = (
    cut,
    flip,
    zero,
    lines_moved,
    foreign,
    rewritten,
    twice,
)


def check(store: ClaudeStore, path: Path, written: list[Entry], damaged: bytes, dice: Random) -> str:
    """What became of a damaged log, in a word. Raises Wrong."""
    path.write_bytes(damaged)
    try:
        found = list(store.read(SESSION))
    except DamagedSession:
        return "refused"
    if found != written[: len(found)]:
        raise Wrong(f"{found!r} was read where {written!r} was written")
    more = entry(len(found), dice)
    log = store.open(SESSION)
    log.append(more)
    log.close()
    if list(store.read(SESSION)) != [*found, more]:
        raise Wrong("the session did not go on behind the damage")
    return "whole" if len(found) == len(written) else "beginning"


def run(folder: Path, logs: int, seed: int) -> Counter[str]:
    dice = Random(seed)
    store = ClaudeStore(folder, EntryContext(cwd="/nowhere", version="1"))
    path = folder / "projects" / "-nowhere" / f"{SESSION}.jsonl"
    outcomes: Counter[str] = Counter()
    while outcomes.total() < logs:
        written = [entry(seq, dice) for seq in range(dice.randrange(1, 12))]
        path.unlink(missing_ok=True)
        log = store.create(SESSION)
        for each in written:
            log.append(each)
        log.close()
        data = path.read_bytes()
        for damage in DAMAGES:
            outcomes[f"{damage.__name__}: {check(store, path, written, damage(data, dice), dice)}"] += 1
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(Path(folder), given.logs, given.seed)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(dict(sorted(outcomes.items())))).decode() + "\n")


if __name__ == "__main__":
    main()
