"""The file with the token of the administrator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from parley.errors import UsageError
from parley.gateway.security.tokens import read_existing, read_token_file

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


@pytest.mark.parametrize(
    ("mode", "is_read"), [(0o400, True), (0o440, True), (0o640, True), (0o660, False), (0o604, False)]
)
def test_the_group_of_a_token_file_may_read_it(tmp_path: Path, mode: int, is_read: bool) -> None:
    path = tmp_path / "token"
    path.write_text("a-token-of-some-length\n")
    path.chmod(mode)
    if is_read:
        assert read_existing(str(path)) == "a-token-of-some-length"
    else:
        with pytest.raises(UsageError, match="other users can read or change"):
            read_existing(str(path))
