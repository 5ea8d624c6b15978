"""Sessions in PostgreSQL, on a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import psycopg
import pytest

from parley.errors import DamagedSession, SessionBusy, SessionError
from parley.stores.files.entry_codec import EntryContext
from parley.stores.sql.postgres import PostgresStore
from tests.helpers import paths
from tests.helpers.ports import free_port
from tests.helpers.postgres import programs, server
from tests.helpers.store_conformance import CONVERSATION, FIRST, SECOND, Place, every_claim, kept, user, write

HOLD = """
import sys
from parley.stores.files.entry_codec import EntryContext
from parley.stores.sql.postgres import PostgresStore
from parley.errors import SessionBusy
from tests.helpers.store_conformance import user
try:
    log = PostgresStore(sys.argv[1], EntryContext(cwd="/", version="")).create(sys.argv[2])
except SessionBusy:
    print("busy", flush=True)
else:
    log.append(user(0, "x", sys.argv[2]))
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    found = programs()
    if found is None and os.environ.get("PARLEY_REQUIRE_COMPAT"):
        pytest.fail("there is no PostgreSQL server (initdb, pg_ctl) to test with; Debian's package is `postgresql`")
    if found is None:
        pytest.skip("there is no PostgreSQL server (initdb, pg_ctl) here")
    with server(found) as address:
        yield address


@pytest.fixture
def address(running: str) -> str:
    """A database without anything in it."""
    with psycopg.connect(running, autocommit=True) as database:
        database.execute("DROP SCHEMA public CASCADE")
        database.execute("CREATE SCHEMA public")
    return running


def store(address: str) -> PostgresStore:
    return PostgresStore(address, EntryContext(cwd="/nowhere/project", version="2.1.0", git_branch="main"))


def holder(address: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
    command = [sys.executable, "-c", HOLD, address, FIRST]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def cut(address: str) -> None:
    """End every other connection, as a broken network would."""
    with psycopg.connect(address, autocommit=True) as database:
        database.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND application_name = 'parley'"
        )


@every_claim
def test_a_server_keeps_the_promises_of_a_store(claim: Callable[[Place], None], address: str) -> None:
    claim(Place(lambda: store(address)))


def test_a_second_opener_is_told_who_holds_the_session_and_a_kill_frees_it(address: str) -> None:
    process = holder(address)
    assert said(process) == "held"
    with pytest.raises(SessionBusy, match=f"in use by process {process.pid} on {os.uname().nodename} since 2"):
        store(address).open(FIRST)
    end(process)
    with psycopg.connect(address, autocommit=True) as database:
        # The server hears of the end of a connection at once; the lock is there when it has cleaned up.
        database.execute("SET statement_timeout = '10s'")
        lock = "hashtextextended('parley session ' || %s || ' 1', 0)"
        database.execute(f"SELECT pg_advisory_lock({lock}), pg_advisory_unlock({lock})", (FIRST, FIRST))

    assert kept(store(address)) == [user(0, "x")]


def test_of_many_who_race_for_a_session_exactly_one_gets_it(address: str) -> None:
    racers = [holder(address) for _ in range(4)]
    answers = sorted(said(racer) for racer in racers)
    for racer in racers:
        end(racer)

    assert answers == ["busy"] * 3 + ["held"]


def test_a_connection_that_breaks_is_recreated(address: str) -> None:
    log = store(address).create(FIRST)
    log.append(CONVERSATION[0])
    cut(address)
    log.append(CONVERSATION[1])

    with pytest.raises(SessionBusy):
        store(address).open(FIRST)
    log.close()
    assert kept(store(address)) == CONVERSATION[:2]


def test_a_holder_that_was_suspended_while_another_wrote_cannot_continue(address: str) -> None:
    log = store(address).create(FIRST)
    log.append(CONVERSATION[0])
    cut(address)
    write(store(address), FIRST, CONVERSATION[1])

    with pytest.raises(SessionBusy):
        log.append(user(2, "from the past"))
    log.close()
    assert kept(store(address)) == CONVERSATION[:2]


def test_an_entry_that_is_there_is_not_written_over(address: str) -> None:
    log = store(address).create(FIRST)
    log.append(user(0, "first"))
    with pytest.raises(SessionError, match="another message with the id 0"):
        log.append(user(0, "second"))
    log.close()

    assert kept(store(address)) == [user(0, "first")]


def test_a_server_that_is_not_there_is_reported_without_the_password() -> None:
    away = store(f"postgres://me:secret@127.0.0.1:{free_port()}/db")

    with pytest.raises(SessionError, match=r"cannot connect to the database: .*refused") as raised:
        away.create(SECOND)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("version", [3, 99])
def test_a_database_of_another_version_is_refused(address: str, version: int) -> None:
    write(store(address), FIRST, CONVERSATION[0])
    spoil(address, f"UPDATE parley_version SET version = {version}")

    with pytest.raises(SessionError, match=f"schema version {version} of sessions; this Parley reads only version 4"):
        store(address).create(SECOND)


def spoil(address: str, *statements: str) -> None:
    with psycopg.connect(address, autocommit=True) as database:
        for statement in statements:
            database.execute(statement.encode())


def test_an_entry_that_was_altered_is_found_and_can_be_put_aside(address: str) -> None:
    write(store(address), FIRST, *(user(seq, f"plum {seq}") for seq in range(4)))
    spoil(
        address,
        "UPDATE parley_messages SET data = convert_to(replace(convert_from(data, 'UTF8'), 'plum 2', 'plan 2'), 'UTF8')",
    )

    with pytest.raises(DamagedSession, match="damaged at entry 2 in the database"):
        kept(store(address))
    mended = store(address).repair(FIRST)
    assert mended is not None
    assert f"the entries of '{FIRST}/damaged-" in mended.aside
    assert kept(store(address)) == [user(0, "plum 0"), user(1, "plum 1")]
    assert [hit.seq for hit in store(address).search("plum")] == [1, 0]
    write(store(address), FIRST, user(2, "again"))
    assert kept(store(address))[2:] == [user(2, "again")]


def test_a_subagent_cannot_write_for_a_session_that_was_taken_over(address: str) -> None:
    process = holder(address)
    assert said(process) == "held"
    ours = store(address).open(FIRST, steal=True)
    agent = store(address).agent_log(FIRST, "a1", {})
    agent.append(user(0, "look"))
    cut(address)
    end(process)
    spoil(address, "UPDATE parley_leases SET holder = 'somebody else', fence = fence + 1")

    with pytest.raises(SessionBusy):
        agent.append(user(1, "look on"))
    agent.close()
    ours.close()
