"""The installation of the clients: once, whole, and with a reason where it cannot be."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.compat import install
from tests.compat.harness import installed
from tests.compat.install import Client, Unavailable, ensure, say


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(install, "ROOT", tmp_path / ".compat")
    return tmp_path / ".compat"


def make(client: Client) -> None:
    (client.place / "bin").mkdir(parents=True)
    (client.place / "bin" / "program").write_text("")


def refuse(client: Client) -> None:
    raise Unavailable("the registry does not answer")


def client(making: install.Make = make, version: str = "1.0") -> Client:
    return Client("client", "some-client", version, making, "bin/program")


def test_what_is_installed_is_not_installed_again() -> None:
    told: list[str] = []
    ensure(client(), told.append)
    ensure(client(refuse), told.append)

    place = client().place
    assert told == [f"installing some-client 1.0 into {place}", f"some-client 1.0 is there: {place}"]


def test_a_half_done_installation_is_recreated() -> None:
    (client().place / "bin").mkdir(parents=True)
    (client().place / "rubbish").write_text("")
    ensure(client(), say)

    assert sorted(path.name for path in client().place.iterdir()) == ["bin", "stamp.json"]


def test_an_installation_that_fails_leaves_no_stamp() -> None:
    with pytest.raises(Unavailable):
        ensure(client(refuse), say)

    assert not client().is_installed()


def test_another_version_replaces_what_is_there() -> None:
    ensure(client(version="1.0"), say)
    ensure(client(version="2.0"), say)

    assert client(version="2.0").is_installed()
    assert not client(version="1.0").is_installed()


def test_an_environment_whose_program_is_gone_is_recreated() -> None:
    ensure(client(), say)
    (client().place / "bin" / "program").unlink()
    ensure(client(), say)

    assert client().program() == str(client().place / "bin" / "program")


def test_two_runs_at_once_install_once() -> None:
    made: list[Client] = []
    started, go_on = threading.Event(), threading.Event()

    def slow(wanted: Client) -> None:
        made.append(wanted)
        started.set()
        go_on.wait(60)
        make(wanted)

    runs = [threading.Thread(target=ensure, args=(client(slow), say)) for _ in range(2)]
    runs[0].start()
    assert started.wait(60)
    runs[1].start()
    go_on.set()
    for run in runs:
        run.join(60)

    assert len(made) == 1


def test_a_client_that_cannot_be_had_skips_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARLEY_REQUIRE_COMPAT", raising=False)

    with pytest.raises(pytest.skip.Exception, match=r"some-client 1\.0 cannot be installed: the registry does not"):
        installed(client(refuse))


def test_where_the_clients_are_required_their_tests_fail_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARLEY_REQUIRE_COMPAT", "1")

    with pytest.raises(pytest.fail.Exception, match="cannot be installed"):
        installed(client(refuse))


def test_a_step_that_fails_reports_its_last_words() -> None:
    with pytest.raises(Unavailable, match=r"failed:\nno such thing"):
        install.run(["sh", "-c", "echo no such thing >&2; exit 3"])
    with pytest.raises(Unavailable, match="there is no program-that-is-not on this machine"):
        install.run(["program-that-is-not"])
