from __future__ import annotations

import inspect

import pytest

from parley.engine.control.dispatcher import find_handler
from parley.protocol.messages.requests import list_requests


@pytest.mark.parametrize("subtype", sorted(subtype for subtype, cls in list_requests().items() if cls.area))
def test_every_area_has_a_function_that_takes_the_request(subtype: str) -> None:
    handler = find_handler(subtype)

    assert handler is not None
    _, request = inspect.signature(handler).parameters.values()
    assert list_requests()[subtype].__name__ in str(request.annotation)


def test_an_unknown_subtype_has_no_handler() -> None:
    assert find_handler("teleport") is None
