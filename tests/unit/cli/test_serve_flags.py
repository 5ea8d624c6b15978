"""Which options of `parley serve` a gateway of a cluster takes."""

from __future__ import annotations

import pytest

from parley.cli.commands.server.serve import OF_HOSTS, check_flags
from parley.cli.commands.subcommand import GivenArgs
from parley.errors import InvalidArguments


def given(*names: str, words: tuple[str, ...] = ()) -> GivenArgs:
    return GivenArgs(action="", words=(), values={name: ["x"] for name in names}, option_words=words)


@pytest.mark.parametrize("name", OF_HOSTS)
def test_what_concerns_sessions_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidArguments, match=f"option '--{name}' cannot be used with '--nats'"):
        check_flags(given("nats", name))


def test_options_of_sessions_are_for_hosts() -> None:
    with pytest.raises(InvalidArguments, match="'--model' cannot be used with '--nats'"):
        check_flags(given("nats", words=("--model", "sonnet")))


def test_options_of_a_cluster_need_one() -> None:
    with pytest.raises(InvalidArguments, match="option '--ttl' needs '--nats'"):
        check_flags(given("ttl"))
    check_flags(given("nats", "ttl", "listen", "token-file"))
    check_flags(given("state", "root"))
