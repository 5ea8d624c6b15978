"""The cost of a model call in US dollars.

The table maps a model name prefix to dollars per million tokens. The cost of an unknown model is None.
`PARLEY_PRICES` names a file that replaces the built-in table. The setting `modelPricing` replaces rows of it and
scales all costs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from parley.errors import UsageError
from parley.protocol.base import Json, Struct

BUILT_IN = Path(__file__).with_name("prices.json")


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


class Prices:
    """The price table, read on first use."""

    def __init__(self, path: Path | None = None, overrides: Json | None = None, multiplier: float = 1) -> None:
        self._path = path
        self._overrides = overrides or {}
        self._multiplier = multiplier
        self._rows: dict[str, Price] | None = None

    @property
    def is_configured(self) -> bool:
        """Whether the user gave the table."""
        return self._path is not None

    def cost_usd(self, model: str, usage: Json) -> float | None:
        """The cost of a call; None if the price is unknown. Raises UsageError if the table is invalid."""
        price = self.price(model)
        return None if price is None else price.of(usage) * self._multiplier

    def price(self, model: str) -> Price | None:
        if self._rows is None:
            self._rows = read_table(self._path or BUILT_IN)
        if (override := self._find_override(model)) is not None:
            return contracted_price(override)
        matching = [name for name in self._rows if model.startswith(name)]
        return self._rows[max(matching, key=len)] if matching else None

    def basis(self, model: str) -> str:
        """Whose prices a model is charged at: `list`, `managed` (the settings or a table of the user) or `unknown`."""
        if self.price(model) is None:
            return "unknown"
        is_own = self.is_configured or self._multiplier != 1 or self._find_override(model) is not None
        return "managed" if is_own else "list"

    def _find_override(self, model: str) -> Json | None:
        for name in sorted(self._overrides, key=len, reverse=True):
            if model.lower().rpartition("anthropic.")[2].startswith(name.lower()):
                row: Json = self._overrides[name]
                return row
        return None


def contracted_price(rates: Json) -> Price:
    """A row of `modelPricing`."""
    write = rates["cacheWrite"]
    return Price(
        input=rates["input"],
        output=rates["output"],
        cache_read=rates["cacheRead"],
        cache_write_5m=write,
        cache_write_1h=write,
    )


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
