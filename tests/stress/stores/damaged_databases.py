"""Damage SQLite files with sessions, their rows and their bytes, and read them.

    python -m tests.stress.stores.damaged_databases --files 20000 --seed 1

What is read must be an exact beginning of what was written, or the session is refused. Never anything else, and
never a traceback. After a beginning was read, the session takes another entry and gives it back, or refuses. What is
refused because of a damaged row can be repaired, and is a beginning then.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import msgspec

from parley.errors import DamagedSession, SessionError
from parley.stores.base import Entry
from parley.stores.files.entry_codec import EntryContext
from parley.stores.sql.sqlite import SqliteStore
from tests.stress.stores.damaged_logs import SESSION, Wrong, cut, entry, flip, zero

FIELDS = ("id", "previous", "data", "checksum")


def row(path: Path, dice: Random, most: int) -> None:
    """One statement that no one of us would make."""
    seq, other = str(dice.randrange(most)), dice.randrange(most)
    field = dice.choice(FIELDS)
    statement, given = dice.choice(
        (
            (f"UPDATE OR IGNORE parley_messages SET {field} = ? WHERE id = ?", ('{"odd":1}', seq)),
            ("UPDATE parley_messages SET checksum = 'odd' WHERE id = ?", (seq,)),
            ("UPDATE parley_messages SET data = CAST(replace(data, 'A', 'B') AS BLOB) WHERE id = ?", (seq,)),
            ("UPDATE parley_messages SET data = CAST(x'ff00' AS TEXT) WHERE id = ?", (seq,)),
            ("DELETE FROM parley_messages WHERE id = ?", (seq,)),
            ("UPDATE OR IGNORE parley_messages SET previous = ? WHERE id = ?", (other, seq)),
            ("UPDATE OR IGNORE parley_messages SET sequence = ? WHERE id = ?", (other, seq)),
            ("UPDATE OR IGNORE parley_messages SET sequence = ? WHERE id = ?", (most + 5, seq)),
            ("UPDATE parley_messages SET session = 'another' WHERE id = ?", (seq,)),
        )
    )
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement, given)


def check(store: SqliteStore, written: list[Entry], dice: Random) -> str:
    """What became of a damaged file, in a word. Raises Wrong."""
    try:
        found = list(store.read(SESSION))
    except DamagedSession:
        return repaired(store, written)
    except SessionError:
        return "refused"
    if found != written[: len(found)]:
        raise Wrong(f"{found!r} was read where {written!r} was written")
    more = entry(len(found), dice)
    try:
        log = store.open(SESSION)
        try:
            log.append(more)
        finally:
            log.close()
        again = list(store.read(SESSION))
    except SessionError:
        return "refused to go on"
    if again != [*found, more]:
        raise Wrong("the session did not go on behind the damage")
    return "whole" if len(found) == len(written) else "beginning"


def repaired(store: SqliteStore, written: list[Entry]) -> str:
    try:
        store.repair(SESSION)
        found = list(store.read(SESSION))
    except SessionError:
        return "refused"
    if found != written[: len(found)]:
        raise Wrong(f"{found!r} is left of {written!r}")
    return "repaired"


def run(folder: Path, files: int, seed: int) -> Counter[str]:
    dice = Random(seed)
    outcomes: Counter[str] = Counter()
    bytewise: tuple[Callable[[bytes, Random], bytes], ...] = (cut, flip, zero)
    while outcomes.total() < files:
        path = folder / "sessions.db"
        store = SqliteStore(path, EntryContext(cwd="/nowhere", version="1"))
        written = [entry(seq, dice) for seq in range(dice.randrange(1, 12))]
        log = store.create(SESSION)
        for each in written:
            log.append(each)
        log.close()
        whole = path.read_bytes()
        for damage in (None, None, None, *bytewise):
            for rest in folder.glob("sessions.db-*"):
                rest.unlink()
            path.write_bytes(whole if damage is None else damage(whole, dice))
            if damage is None:
                row(path, dice, len(written))
            name = "row" if damage is None else damage.__name__
            outcomes[f"{name}: {check(store, written, dice)}"] += 1
        for part in folder.glob("sessions.db*"):
            if part.is_file():
                part.unlink()
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = run(Path(folder), given.files, given.seed)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(dict(sorted(outcomes.items())))).decode() + "\n")


if __name__ == "__main__":
    main()
