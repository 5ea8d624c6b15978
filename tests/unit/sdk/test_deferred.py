"""Classes and modules that are completed when they are first used: whatever the first use is, nothing else differs."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

import pytest

from parley.sdk.spelling import checks_names
from parley.sdk.types.deferred import DeferredModule, deferred_dataclass, deferred_field


def make_eager() -> Any:
    @checks_names
    @dataclass
    class Trip:
        """A journey."""

        goal: str
        stops: list[str] = field(default_factory=list)
        days: int = 3

    return Trip


def make_deferred() -> Any:
    @deferred_dataclass
    class Trip:
        """A journey."""

        goal: str
        stops: list[str] = deferred_field(default_factory=list)  # type: ignore[assignment]  # replaced by the list
        days: int = 3

    return Trip


def made_without_init(cls: Any) -> Any:
    """An instance as `pickle` makes it."""
    found = object.__new__(cls)
    found.__dict__.update(goal="Rome", stops=[], days=1)
    return found


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises((TypeError, AttributeError)) as raised:
        call()
    return str(raised.value)


def subclass(cls: Any) -> object:
    @dataclass
    class Longer(cls):  # type: ignore[misc]  # the class is only known at run time
        nights: int = 5

    return repr(Longer("Rome", nights=2)), Longer.__match_args__


def initialize_from_subclass(cls: Any) -> object:
    class Short(cls):  # type: ignore[misc]  # as above
        def __init__(self) -> None:
            super().__init__("Rome", days=1)

    return asdict(Short())


def match_positions(cls: Any) -> object:
    match made_without_init(cls):
        case cls(goal, stops):
            return goal, stops
    return None


USES: dict[str, Callable[[Any], object]] = {
    "call": lambda cls: asdict(cls("Rome", days=1)),
    "two calls have two lists": lambda cls: cls("Rome").stops is cls("Rome").stops,
    "fields": lambda cls: [(one.name, one.type, one.default) for one in fields(cls)],
    "is_dataclass": is_dataclass,
    "signature": lambda cls: str(inspect.signature(cls)),
    "repr": lambda cls: repr(made_without_init(cls)),
    "equal": lambda cls: (made_without_init(cls) == cls("Rome", [], 1), made_without_init(cls) == cls("Rome")),
    "hash": lambda cls: error_of(lambda: hash(made_without_init(cls))),
    "replace": lambda cls: asdict(replace(made_without_init(cls), days=8)),
    "copy": lambda cls: copy.copy(made_without_init(cls)) == made_without_init(cls),
    "subclass": subclass,
    "initialize from a subclass": initialize_from_subclass,
    "match": match_positions,
    "class attributes": lambda cls: (hasattr(cls, "stops"), cls.days, cls.__doc__, cls.__init__.__qualname__),
    "missing argument": error_of,
    "misspelled argument": lambda cls: error_of(lambda: cls(gaol="Rome")),
    "misspelled attribute": lambda cls: error_of(lambda: setattr(made_without_init(cls), "dayz", 1)),
}


@pytest.mark.parametrize("use", USES)
def test_a_deferred_dataclass_is_a_dataclass_from_its_first_use_on(use: str) -> None:
    eager, deferred = USES[use](make_eager()), USES[use](make_deferred())

    assert str(deferred).replace("make_deferred", "make_eager") == str(eager)


def test_threads_that_use_it_first_together_all_get_the_whole_class() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for _ in range(20):
                cls = make_deferred()
                found = list(pool.map(lambda day, cls=cls: repr(cls("Rome", days=day)), range(8)))
                assert [text.split("Trip", 1)[1] for text in found] == [
                    f"(goal='Rome', stops=[], days={day})" for day in range(8)
                ]
    finally:
        sys.setswitchinterval(interval)


def test_a_deferred_module_has_the_attributes_of_the_module() -> None:
    module: Any = DeferredModule("colorsys")

    assert module.rgb_to_hsv(0, 0, 0) == (0.0, 0.0, 0)
    with pytest.raises(AttributeError, match="module 'colorsys' has no attribute 'nothing'"):
        _ = module.nothing
