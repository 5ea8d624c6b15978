from __future__ import annotations

import inspect

import pytest

from parley.engine.control.routes import HANDLERS, find_handler
from parley.protocol.messages.requests import list_requests


@pytest.mark.parametrize("subtype", sorted(HANDLERS))
def test_every_row_names_a_function_that_takes_the_request(subtype: str) -> None:
    handler = find_handler(subtype)

    assert handler is not None
    _, request = inspect.signature(handler).parameters.values()
    assert list_requests()[subtype].__name__ in str(request.annotation)


def test_a_subtype_without_a_row_has_no_handler() -> None:
    assert find_handler("teleport") is None
