"""The file with the token of the administrator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from parley.gateway.security.tokens import read_token_file

SERVERS = 8


def test_servers_that_are_started_together_have_the_same_new_token(tmp_path: Path) -> None:
    start = Barrier(SERVERS)

    def read(_: int) -> tuple[str, bool]:
        start.wait()
        return read_token_file(str(tmp_path / "token"))

    with ThreadPoolExecutor(SERVERS) as pool:
        found = list(pool.map(read, range(SERVERS)))

    assert len({token for token, _ in found}) == 1
    assert sum(is_new for _, is_new in found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["token"]
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
