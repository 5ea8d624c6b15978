"""Model names: aliases, backends and known limits.

    resolve("sonnet")          -> ModelRef(adapter="anthropic", name="claude-sonnet-5-5")
    resolve("scripted:a.toml") -> ModelRef(adapter="scripted", name="a.toml")
    resolve("offline")         -> ModelRef(adapter="offline", name="offline")

An unknown name goes to the Anthropic backend unchanged.
"""

from __future__ import annotations

from parley.protocol.base import Json, Struct

ALIASES = {
    "default": "claude-opus-5-5",
    "inherit": "claude-opus-5-5",
    "opus": "claude-opus-5-5",
    "fable": "claude-fable-5-2",
    "sonnet": "claude-sonnet-5-5",
    "haiku": "claude-haiku-5-5",
}
ADAPTERS = ("scripted", "replay", "openai", "anthropic")
"""Prefixes of names of the form `adapter:name`."""
BUILT_IN = "offline"
FAKE_ADAPTERS = ("scripted", "replay", BUILT_IN)
"""Backends that play prepared answers instead of calling a model."""


class ModelRef(Struct, frozen=True):
    """A backend and its name for the model."""

    adapter: str
    name: str

    @property
    def display_name(self) -> str:
        """The model's name in messages."""
        return self.name if self.adapter in ("anthropic", BUILT_IN) else f"{self.adapter}:{self.name}"


def resolve(name: str) -> ModelRef:
    """Resolve aliases and the `adapter:` prefix."""
    if name == BUILT_IN:
        return ModelRef(BUILT_IN, BUILT_IN)
    adapter, colon, rest = name.partition(":")
    if colon and adapter in ADAPTERS:
        return ModelRef(adapter, ALIASES.get(rest, rest) if adapter == "anthropic" else rest)
    return ModelRef("anthropic", ALIASES.get(name, name))


class ModelInfo(Struct, frozen=True):
    """Limits and features of a model."""

    context_window: int = 200_000
    max_output_tokens: int = 32_000
    thinking: str = "adaptive"
    """"adaptive": the model decides; "budget": takes a token budget; "never"."""
    supports_effort: bool = False
    must_read_first: bool = False
    """Whether the model must read a file before it edits it, as Claude Code requires of older models."""
    supports_task_budget: bool = False
    supports_schemas: bool = False
    """Whether the backend enforces a JSON Schema. If not, a tool does, as in Claude Code."""


# The first row whose prefix matches applies.
MODEL_INFO = (
    ("claude-opus-5", ModelInfo(1_000_000, 128_000, supports_effort=True, supports_task_budget=True)),
    ("claude-fable-5", ModelInfo(1_000_000, 128_000, supports_effort=True, supports_task_budget=True)),
    ("claude-sonnet-5", ModelInfo(1_000_000, 128_000, supports_effort=True, supports_task_budget=True)),
    ("claude-haiku-5", ModelInfo(1_000_000, 128_000, supports_effort=True, supports_task_budget=True)),
    ("claude-opus-4", ModelInfo(200_000, 32_000, thinking="budget", must_read_first=True)),
    ("claude-sonnet-4", ModelInfo(200_000, 32_000, thinking="budget", must_read_first=True)),
    ("claude-haiku-4", ModelInfo(200_000, 32_000, thinking="budget", must_read_first=True)),
    ("claude-3", ModelInfo(200_000, 8_192, thinking="never", must_read_first=True)),
    ("claude-", ModelInfo()),
    ("gpt-5", ModelInfo(400_000, 128_000, thinking="never", supports_schemas=True)),
    ("gpt-4.1", ModelInfo(1_000_000, 32_768, thinking="never", supports_schemas=True)),
    ("gpt-4o", ModelInfo(128_000, 16_384, thinking="never", supports_schemas=True)),
)
CHARS_PER_TOKEN = 4
"""A rough estimate."""
UNKNOWN_MODEL = ModelInfo(200_000, 32_000, thinking="never")
"""Optional fields are not sent to unknown models."""


def model_info(name: str) -> ModelInfo:
    # Bedrock puts a region and vendor before the name: `us.anthropic.claude-...`
    name = name.rpartition("anthropic.")[2]
    return next((known for start, known in MODEL_INFO if name.startswith(start)), UNKNOWN_MODEL)


def list_known_models() -> list[Json]:
    """The models for the initialize response. Clients treat the first one as current."""
    titles = {"default": "Default", "opus": "Opus", "fable": "Fable", "sonnet": "Sonnet", "haiku": "Haiku"}
    rows: list[Json] = []
    for alias, title in titles.items():
        known = model_info(ALIASES[alias])
        row: Json = {
            "value": alias,
            "resolvedModel": ALIASES[alias],
            "displayName": title,
            "description": f"{ALIASES[alias]} through the Messages API",
            "supportsEffort": known.supports_effort,
            "supportsAdaptiveThinking": known.thinking == "adaptive",
        }
        if known.supports_effort:
            row["supportedEffortLevels"] = ["low", "medium", "high", "xhigh", "max"]
        rows.append(row)
    offline = "The built-in fake model: follows directives in the prompt, needs no key and no network"
    return [*rows, {"value": BUILT_IN, "resolvedModel": BUILT_IN, "displayName": "Offline", "description": offline}]
