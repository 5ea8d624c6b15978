"""Model backends, model names, and what is known of each model: its limits and its price.

    resolve("sonnet")          -> ModelRef(adapter="anthropic", name="claude-sonnet-5-5")
    resolve("sonnet[1m]")      -> the same with a window of a million tokens; the suffix is never sent
    resolve("scripted:a.toml") -> ModelRef(adapter="scripted", name="a.toml")
    resolve("offline")         -> ModelRef(adapter="offline", name="offline")

An unknown name goes to the Messages API unchanged; the server decides. `BACKENDS` has one row per backend; another
package adds one with an entry point in `parley.models`. A backend is a file in `backends/` and its row.

The price of a model is in dollars per million tokens. A table maps how model names begin to prices. The first of these
that has a row for a model is used, and in it the row with the longest name:

    modelPricing     in managed settings
    models           in settings (entries.py)
    PARLEY_PRICES    a file: {"house-": {"input": 1, "output": 2}}
    prices.json      built in

`modelPricing` can also scale all costs. The cost of a call to a model without a row is None. A built-in row is for one
version of a model: what a later version costs is not known.

See also: `base.py` for the interface of a model, `backends/base.py` for what HTTP backends share,
`settings/credentials.py` for how addresses and keys are found.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec.structs import replace

import parley.entry_points as entry_points
from parley.errors import UsageError
from parley.protocol import options
from parley.protocol.base import Json, Struct

if TYPE_CHECKING:
    from parley.models.base import Model, ModelSetup

GROUP = "parley.models"
ALIASES = {
    "default": "claude-opus-5-5",
    "inherit": "claude-opus-5-5",
    "opus": "claude-opus-5-5",
    "best": "claude-fable-5-2",
    "fable": "claude-fable-5-2",
    "sonnet": "claude-sonnet-5-5",
    "haiku": "claude-haiku-5-5",
}

OPUSPLAN = "opusplan"
"""The short name that means `opus` in plan mode and `sonnet` otherwise."""
LONG_CONTEXT = "[1m]"
"""The end of a model's name that asks for a window of a million tokens."""
EFFORTS = options.EFFORTS
"""The effort levels, lowest first."""
ALIAS_VARIABLES = {f"ANTHROPIC_DEFAULT_{alias.upper()}_MODEL": alias for alias in ("opus", "sonnet", "haiku", "fable")}
"""Variables that say what a short name stands for."""


class Server(Struct, frozen=True):
    """Where the server of a backend is, and where its key comes from."""

    variables: str
    """How the names of its variables begin: NAME for NAME_BASE_URL, NAME_API_KEY and NAME_CUSTOM_HEADERS."""
    url: str
    """The provider's own address, as a base URL."""
    fields_variable: str = ""
    """The variable that lists the optional fields which another server supports."""
    own_fields: frozenset[str] = frozenset()
    """Those that the provider's own server supports."""


class Backend(Struct, frozen=True, kw_only=True):
    """A way to reach models."""

    cls: str = ""
    """Where the class of the backend is, as `module:name`. Its `open` makes a model."""
    open: Callable[[ModelSetup, str], Model] | None = None
    """Makes the model of a name, instead of the class. Raises UsageError or ModelError."""
    server: Server | None = None
    """What `ModelSetup.find_endpoint` needs; None if the backend does not call it."""
    adapts_info: bool = False
    """Whether `adapt_info` of its class says what is known of a model on a server that supports certain fields."""
    client_options: Mapping[str, tuple[str, ...]] = {}
    """Of a cloud: the options of its client, and the variables they are read from; the first that is set is used."""
    credential_helper: str = ""
    """The setting that names a command which prints the credentials of a cloud."""
    chosen_by: str = "prefix"
    """`prefix` for models named BACKEND:NAME, `name` for BACKEND alone, `environment` for a cloud."""
    is_fake: bool = False
    """Whether no model answers: the answers are scripted or recorded."""
    is_messages_api: bool = False
    """Whether it is the Messages API, for which short names such as `sonnet` and server-side tools exist."""
    about: str = ""
    """What `parley models` shows instead of an address."""
    provider: str = ""
    """How telemetry names the service; empty for the backend's own name."""


OPENAI = Server(
    "OPENAI",
    "https://api.openai.com/v1",
    "PARLEY_OPENAI_FIELDS",
    frozenset({"max_completion_tokens", "reasoning_effort", "response_format"}),
)
BACKENDS = {
    "anthropic": Backend(
        cls="parley.models.backends.anthropic:Anthropic",
        server=Server("ANTHROPIC", "https://api.anthropic.com"),
        is_messages_api=True,
    ),
    "bedrock": Backend(
        cls="parley.models.backends.cloud:Bedrock",
        chosen_by="environment",
        client_options={
            "aws_region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
            "aws_access_key": ("AWS_ACCESS_KEY_ID",),
            "aws_secret_key": ("AWS_SECRET_ACCESS_KEY",),
            "aws_session_token": ("AWS_SESSION_TOKEN",),
            "aws_profile": ("AWS_PROFILE",),
            "api_key": ("AWS_BEARER_TOKEN_BEDROCK",),
            "base_url": ("ANTHROPIC_BEDROCK_BASE_URL",),
        },
        credential_helper="awsCredentialExport",
    ),
    "vertex": Backend(
        cls="parley.models.backends.cloud:Vertex",
        chosen_by="environment",
        client_options={
            "region": ("CLOUD_ML_REGION",),
            "project_id": ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT"),
            "base_url": ("ANTHROPIC_VERTEX_BASE_URL",),
        },
    ),
    "openai": Backend(cls="parley.models.backends.openai:OpenAI", server=OPENAI, adapts_info=True),
    "openai-responses": Backend(
        cls="parley.models.backends.responses:OpenAIResponses", server=OPENAI, adapts_info=True, provider="openai"
    ),
    "scripted": Backend(cls="parley.models.fakes:Scripted", is_fake=True, about="scripted:FILE answers from a script"),
    "offline": Backend(
        cls="parley.models.fakes:Offline",
        chosen_by="name",
        is_fake=True,
        about="the built-in fake model: no key, no network",
    ),
    "replay": Backend(cls="parley.models.replay:Replay", is_fake=True, about="replay:FILE answers from a recording"),
}
DEFAULT_BACKEND = next(name for name, row in BACKENDS.items() if row.is_messages_api)
OFFLINE = next(name for name, row in BACKENDS.items() if row.chosen_by == "name")


def list_backends() -> tuple[str, ...]:
    """The names of all backends, those of other packages last."""
    return (*BACKENDS, *(name for name in entry_points.discover(GROUP) if name not in BACKENDS))


def find_backend(name: str) -> Backend | None:
    """The backend of a name; None if there is none. Raises ExtensionError if that of a package cannot be used."""
    if name in BACKENDS or name not in entry_points.discover(GROUP):
        return BACKENDS.get(name)
    found = entry_points.load(GROUP, name)
    if not isinstance(found, Backend) or (found.open is None and not found.cls):
        raise entry_points.ExtensionError(
            f"{entry_points.describe(GROUP, name)} must be a parley.models.catalog.Backend whose `open` is set"
        )
    return found


def get_backend(name: str) -> Backend:
    """What is known of a backend; the defaults if it cannot be loaded, which opening a model reports."""
    if (known := BACKENDS.get(name)) is not None:
        return known
    try:
        return find_backend(name) or Backend()
    except entry_points.ExtensionError:
        return Backend()


class ModelRef(Struct, frozen=True):
    """A backend, and the name it knows the model by."""

    adapter: str
    name: str
    planning: ModelRef | None = None
    """The model to call in plan mode, if it is another one."""

    def in_mode(self, mode: str) -> ModelRef:
        """The model to call in a permission mode."""
        if self.planning is None:
            return self
        return self.planning if mode == "plan" else ModelRef(self.adapter, self.name)

    @property
    def backend(self) -> Backend:
        return get_backend(self.adapter)

    @property
    def is_fake(self) -> bool:
        return self.backend.is_fake

    @property
    def is_messages_api(self) -> bool:
        return self.backend.is_messages_api

    @property
    def display_name(self) -> str:
        """How messages name the model."""
        row = self.backend
        return self.name if row.is_messages_api or row.chosen_by == "name" else f"{self.adapter}:{self.name}"

    @property
    def request_name(self) -> str:
        """How a request names the model."""
        return self.name if self.is_messages_api else self.display_name


def aliases_from(environment: Mapping[str, str]) -> dict[str, str]:
    """The short names that the environment redefines. `default` follows the name that it is another word for."""
    given = {ALIASES[alias]: environment.get(variable) for variable, alias in ALIAS_VARIABLES.items()}
    return {alias: name for alias, full in ALIASES.items() if (name := given.get(full))}


def resolve(name: str, aliases: Mapping[str, str] = {}) -> ModelRef:
    """What a name stands for. `aliases` are short names that differ from ours."""
    base = without_long_context(name)
    suffix = name[len(base) :]
    if base == OPUSPLAN:
        usual, planning = (resolve(f"{alias}{suffix}", aliases) for alias in ("sonnet", "opus"))
        return ModelRef(usual.adapter, usual.name, planning)
    found = aliases.get(base, base)
    if found == OFFLINE:
        return ModelRef(OFFLINE, OFFLINE)
    adapter, colon, rest = found.partition(":")
    if not (colon and is_prefix(adapter)):
        adapter, rest = DEFAULT_BACKEND, found
    if not ModelRef(adapter, rest).is_messages_api:
        return ModelRef(adapter, f"{rest}{suffix}")
    full = without_long_context(ALIASES.get(rest, rest))
    return ModelRef(adapter, f"{full}{LONG_CONTEXT}" if suffix or full != ALIASES.get(rest, rest) else full)


def without_long_context(name: str) -> str:
    """The name of a model as servers know it."""
    return name[: -len(LONG_CONTEXT)] if name.lower().endswith(LONG_CONTEXT) else name


def is_prefix(adapter: str) -> bool:
    """Whether BACKEND:NAME means a model of this backend. A package's backend is not loaded for this."""
    if adapter in BACKENDS:
        return BACKENDS[adapter].chosen_by == "prefix"
    return adapter in entry_points.discover(GROUP)


class ModelInfo(Struct, frozen=True):
    """Limits and features of a model."""

    context_window: int = 200_000
    max_output_tokens: int = 32_000
    thinking: str = "adaptive"
    """"adaptive": the model decides; "budget": takes a token budget; "effort": either, as an effort; "never"."""
    thinking_off: str = "omitted"
    """How thinking is turned off: by leaving the field out, or by a `type` of it; "always_on" if it cannot be."""
    efforts: tuple[str, ...] = ()
    """The efforts that the model takes, the lowest first."""
    must_read_first: bool = False
    """Whether the model must read a file before it edits it, as Claude Code requires of older models."""
    supports_task_budget: bool = False
    supports_schemas: bool = False
    """Whether the backend enforces a JSON Schema. If not, a tool does, as in Claude Code."""
    takes_sampling: bool = True
    """Whether the server takes `temperature`, `top_p` and `top_k`."""
    betas: tuple[str, ...] = ()
    """The betas that requests need."""
    thinking_betas: tuple[str, ...] = ()
    """The betas that requests with a thinking budget need."""

    @property
    def has_off_type(self) -> bool:
        """Whether a `type` of thinking turns it off."""
        return self.thinking_off not in ("omitted", "always_on")


CHECKED = "2026-11-18"
"""When the tables were last compared with the pages "Models overview", "Pricing", "Adaptive thinking" and "Effort" of
platform.claude.com and with the pages of the models there."""
INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
"""Thinking between tool calls. Models that think adaptively do it without."""
CONTEXT_1M_BETA = "context-1m-2025-08-07"
FROM_5 = ModelInfo(1_000_000, 128_000, efforts=EFFORTS, supports_task_budget=True, takes_sampling=False)
FROM_4_7 = replace(FROM_5, must_read_first=True)
FROM_4 = ModelInfo(200_000, 32_000, "budget", must_read_first=True, thinking_betas=(INTERLEAVED_BETA,))
CLAUDE_NAME = (
    r"(?<![a-z0-9])claude-(?:([a-z]+)-)?"  # the family stands before the version,
    r"(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)"
    r"(?:-([a-z]+))?"  # or after it in names before 4
)
# The first row of the family, or of any family (""), whose version is not above that of the model applies.
CLAUDE_MODELS = (
    ("opus", (5, 5), replace(FROM_5, thinking_off="always_on")),
    ("sonnet", (5, 5), replace(FROM_5, thinking_off="between_tools")),
    ("haiku", (5, 5), replace(FROM_5, thinking_off="disabled")),
    ("opus", (5, 0), replace(FROM_5, thinking_off="disabled")),
    ("sonnet", (5, 0), replace(FROM_5, thinking_off="disabled")),
    ("fable", (5, 0), replace(FROM_5, thinking_off="always_on")),
    ("mythos", (5, 0), replace(FROM_5, thinking_off="always_on")),
    ("", (5, 0), FROM_5),
    ("", (4, 7), FROM_4_7),
    ("", (4, 6), ModelInfo(1_000_000, 128_000, efforts=("low", "medium", "high", "max"), must_read_first=True)),
    ("opus", (4, 5), replace(FROM_4, efforts=("low", "medium", "high"))),
    ("", (4, 0), FROM_4),
    ("", (3, 7), replace(FROM_4, thinking_betas=())),
    ("", (0, 0), ModelInfo(200_000, 8_192, thinking="never", must_read_first=True)),
)
# The first row whose prefix matches applies.
OTHER_MODELS = (
    ("claude-", ModelInfo()),
    ("gpt-5", ModelInfo(400_000, 128_000, thinking="never", supports_schemas=True)),
    ("gpt-4.1", ModelInfo(1_000_000, 32_768, thinking="never", supports_schemas=True)),
    ("gpt-4o", ModelInfo(128_000, 16_384, thinking="never", supports_schemas=True)),
)
CHARS_PER_TOKEN = 4
"""A rough estimate."""
UNKNOWN_MODEL = ModelInfo(200_000, 32_000, thinking="never")
"""Optional fields are not sent to unknown models."""
BUDGET_EFFORTS = ((4_000, "low"), (10_000, "medium"))
"""The effort that stands for a thinking budget up to so many tokens; `high` for more."""


def model_info(name: str) -> ModelInfo:
    base = without_long_context(name)
    known = find_known(base)
    if base == name or known.context_window >= 1_000_000:
        return known
    return replace(known, context_window=1_000_000, betas=(CONTEXT_1M_BETA,))


def find_known(name: str) -> ModelInfo:
    if (claude := claude_version(name)) is not None:
        family, version = claude
        return next(row for start, lowest, row in CLAUDE_MODELS if start in ("", family) and version >= lowest)
    # Bedrock puts a region and vendor before the name: `us.anthropic.claude-...`
    name = name.rpartition("anthropic.")[2]
    return next((known for start, known in OTHER_MODELS if name.startswith(start)), UNKNOWN_MODEL)


def claude_version(name: str) -> tuple[str, tuple[int, int]] | None:
    """The family and the version that a name contains, wherever a cloud or a proxy puts them; None if it has none."""
    found = re.search(CLAUDE_NAME, name.lower())
    if found is None:
        return None
    family, major, minor, old_family = found.groups()
    return family or old_family or "", (int(major), int(minor or 0))


def effort_for_budget(tokens: int) -> str:
    """The effort that stands for a thinking budget, for models that take no budget."""
    return next((effort for most, effort in BUDGET_EFFORTS if tokens <= most), "high")


def thinking_owner(name: str) -> str:
    """Whose thinking a model's is: models with the same owner read each other's thinking, others do not.

    A model has several names: with a date, with a region. Fable and Mythos of one version read each other's thinking.
    """
    base = re.sub(r"[-@](latest|20\d{6})\b|(-v\d+)?(:\d+)?(\[1m\])?$", "", name.rpartition("anthropic.")[2])
    return base.replace("claude-mythos-", "claude-fable-")


def list_known_models(
    aliases: Mapping[str, str] = {}, is_allowed: Callable[[ModelRef], bool] = lambda choice: True
) -> list[Json]:
    """The models for the initialize response that settings permit. Clients treat the first one as current."""
    titles = {"default": "Default", "opus": "Opus", "fable": "Fable", "sonnet": "Sonnet", "haiku": "Haiku"}
    rows: list[Json] = []
    for alias, title in titles.items():
        name = aliases.get(alias, ALIASES[alias])
        known = model_info(name)
        row: Json = {
            "value": alias,
            "resolvedModel": name,
            "displayName": title,
            "description": f"{name} through the Messages API",
            "supportsEffort": bool(known.efforts),
            "supportsAdaptiveThinking": known.thinking == "adaptive",
        }
        if known.efforts:
            row["supportedEffortLevels"] = list(known.efforts)
        rows.append(row)
    about = "The built-in fake model: follows directives in the prompt, needs no key and no network"
    rows.append({"value": OFFLINE, "resolvedModel": OFFLINE, "displayName": "Offline", "description": about})
    return [row for row in rows if is_allowed(resolve(row["value"], aliases))]


BUILT_IN = Path(__file__).with_name("prices.json")
BUILT_IN_SOURCE = "built-in"
MANAGED_SOURCE = "modelPricing"


Dollars = Annotated[float, msgspec.Meta(ge=0)]


class LongContextPrice(Struct, frozen=True, forbid_unknown_fields=True):
    """What a call costs whose prompt is longer."""

    over_tokens: int
    input: Dollars
    output: Dollars


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per million tokens."""

    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write_5m: Dollars | None = None
    cache_write_1h: Dollars | None = None
    web_search: Dollars = 10 / 1000
    """Dollars per search."""
    long_context: LongContextPrice | None = None

    def of(self, usage: Json) -> float:
        """The cost of one call."""
        if (above := self.long_context) is not None and prompt_tokens(usage) > above.over_tokens:
            return replace(self, input=above.input, output=above.output, long_context=None).of(usage)
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


def prompt_tokens(usage: Json) -> int:
    kinds = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(usage.get(kind) or 0 for kind in kinds)


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
        self._found: dict[str, KnownPrice | None] = {}

    def cost_usd(self, model: str, usage: Json) -> float | None:
        """The cost of a call; None if the price is unknown. Raises UsageError if a table is invalid."""
        found = self.find(model)
        return None if found is None else found.price.of(usage) * self._multiplier

    def find(self, model: str) -> KnownPrice | None:
        """The price of a model; None if it is unknown. Raises UsageError if a table is invalid."""
        if model not in self._found:
            self._found[model] = self._search(model)
        return self._found[model]

    def _search(self, model: str) -> KnownPrice | None:
        if (override := self._find_override(model)) is not None:
            return KnownPrice(msgspec.convert(override, Rates).to_price(), MANAGED_SOURCE)
        for table in (self._settings, self.read_file()):
            if (name := longest_prefix(model, table)) is not None:
                return table[name]
        # Bedrock puts a region and vendor before the name: `us.anthropic.claude-...`
        known, bare = read_built_in(), model.rpartition("anthropic.")[2]
        name = longest_prefix(bare, known)
        return None if name is None or claude_version(name) != claude_version(bare) else known[name]

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


@functools.cache
def read_built_in() -> Mapping[str, KnownPrice]:
    return read_known(BUILT_IN)


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
