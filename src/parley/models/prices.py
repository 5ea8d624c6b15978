"""The cost of a model call in US dollars.

A table maps how model names begin to dollars per million tokens. The first of these that has a row for a model is used,
and in it the row with the longest name:

    modelPricing     in managed settings
    models           in settings (entries.py)
    PARLEY_PRICES    a file: {"house-": {"input": 1, "output": 2}}
    prices.json      built in

`modelPricing` can also scale all costs. The cost of a model without a row is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json, Struct

BUILT_IN = Path(__file__).with_name("prices.json")
BUILT_IN_SOURCE = "built-in"
MANAGED_SOURCE = "modelPricing"


Dollars = Annotated[float, msgspec.Meta(ge=0)]


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per million tokens."""

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write_5m: Dollars | None = None
    cache_write_1h: Dollars | None = None
    web_search: Dollars = 10 / 1000
    """Dollars per search."""

    def of(self, usage: Json) -> float:
        """The cost of one call."""
        written = usage.get("cache_creation") or {}
        hour = written.get("ephemeral_1h_input_tokens") or 0
        five_minutes = (usage.get("cache_creation_input_tokens") or 0) - hour
        read = self.input * 0.1 if self.cache_read is None else self.cache_read
        write_5m = self.input * 1.25 if self.cache_write_5m is None else self.cache_write_5m
        write_1h = self.input * 2 if self.cache_write_1h is None else self.cache_write_1h
        searches = (usage.get("server_tool_use") or {}).get("web_search_requests") or 0
        dollars_per_million = (
            (usage.get("input_tokens") or 0) * self.input
            + (usage.get("output_tokens") or 0) * self.output
            + (usage.get("cache_read_input_tokens") or 0) * read
            + five_minutes * write_5m
            + hour * write_1h
        )
        return dollars_per_million / 1_000_000 + searches * self.web_search


class Rates(Struct, frozen=True, forbid_unknown_fields=True):
    """A price as settings have it, in `models` and `modelPricing`."""

    input: Dollars
    output: Dollars
    cacheRead: Dollars | None = None
    cacheWrite: Dollars | None = None

    def to_price(self) -> Price:
        return Price(
            input=self.input,
            output=self.output,
            cache_read=self.cacheRead,
            cache_write_5m=self.cacheWrite,
            cache_write_1h=self.cacheWrite,
        )


class KnownPrice(Struct, frozen=True):
    """The price of a model, and where it comes from."""

    price: Price
    source: str
    """`built-in`, `modelPricing`, or a file."""


class Prices:
    """The price tables, read on first use."""

    def __init__(
        self,
        path: Path | None = None,
        overrides: Json | None = None,
        multiplier: float = 1,
        settings: Mapping[str, KnownPrice] | None = None,
    ) -> None:
        """`path` is a price file, `overrides` and `multiplier` are `modelPricing`, `settings` is `models`."""
        self._path = path
        self._overrides = overrides or {}
        self._multiplier = multiplier
        self._settings = settings or {}
        self._file: Mapping[str, KnownPrice] | None = None
        self._built_in: Mapping[str, KnownPrice] | None = None

    def cost_usd(self, model: str, usage: Json) -> float | None:
        """The cost of a call; None if the price is unknown. Raises UsageError if a table is invalid."""
        found = self.find(model)
        return None if found is None else found.price.of(usage) * self._multiplier

    def find(self, model: str) -> KnownPrice | None:
        """The price of a model; None if it is unknown. Raises UsageError if a table is invalid."""
        if (override := self._find_override(model)) is not None:
            return KnownPrice(msgspec.convert(override, Rates).to_price(), MANAGED_SOURCE)
        if self._built_in is None:
            self._built_in = read_known(BUILT_IN)
        for table in (self._settings, self.read_file(), self._built_in):
            if (name := longest_prefix(model, table)) is not None:
                return table[name]
        return None

    def read_file(self) -> Mapping[str, KnownPrice]:
        """The price file of the user; empty if there is none. Raises UsageError."""
        if self._file is None:
            self._file = {} if self._path is None else read_known(self._path)
        return self._file

    def basis(self, model: str) -> str:
        """Whose prices a model is charged at: `list`, `managed` (the settings or a table of the user) or `unknown`."""
        found = self.find(model)
        if found is None:
            return "unknown"
        return "list" if found.source == BUILT_IN_SOURCE and self._multiplier == 1 else "managed"

    def _find_override(self, model: str) -> Json | None:
        for name in sorted(self._overrides, key=len, reverse=True):
            if model.lower().rpartition("anthropic.")[2].startswith(name.lower()):
                row: Json = self._overrides[name]
                return row
        return None


def longest_prefix(model: str, names: Mapping[str, Any]) -> str | None:
    """The longest of the names that the model's name begins with."""
    return max((name for name in names if model.startswith(name)), key=len, default=None)


def read_known(path: Path) -> dict[str, KnownPrice]:
    """Raises UsageError."""
    source = BUILT_IN_SOURCE if path == BUILT_IN else str(path)
    return {name: KnownPrice(price, source) for name, price in read_table(path).items()}


def read_table(path: Path) -> dict[str, Price]:
    """Raises UsageError."""
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as exc:
        raise UsageError(f"cannot read price table {path}: {exc.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise UsageError(f"invalid price table {path}: {exc}") from None
    found = {}
    for name, row in rows.items():
        try:
            found[name] = msgspec.convert(row, Price)
        except msgspec.ValidationError as exc:
            raise UsageError(f"invalid price table {path}, entry {name!r}: {exc}") from None
    return found
