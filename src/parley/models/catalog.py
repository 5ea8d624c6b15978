"""Model names: what a name stands for, and what we know of the model behind it.

    resolve("sonnet")          -> Choice(adapter="anthropic", name="claude-sonnet-5-5")
    resolve("scripted:a.toml") -> Choice(adapter="scripted", name="a.toml")
    resolve("offline")         -> Choice(adapter="offline", name="offline")

A name nobody knows goes to the Anthropic adapter as it is: the backend decides.
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
"""Names of the form `adapter:rest`."""
BUILT_IN = "offline"
PUPPETS = ("scripted", "replay", BUILT_IN)
"""Adapters without a model behind them: they say what they are told to."""


class Choice(Struct, frozen=True):
    """Which adapter, and the name it knows the model by."""

    adapter: str
    name: str

    @property
    def shown(self) -> str:
        """How lines name the model."""
        return self.name if self.adapter in ("anthropic", BUILT_IN) else f"{self.adapter}:{self.name}"


def resolve(name: str) -> Choice:
    """What a name stands for."""
    if name == BUILT_IN:
        return Choice(BUILT_IN, BUILT_IN)
    adapter, colon, rest = name.partition(":")
    if colon and adapter in ADAPTERS:
        return Choice(adapter, ALIASES.get(rest, rest) if adapter == "anthropic" else rest)
    return Choice("anthropic", ALIASES.get(name, name))


class Facts(Struct, frozen=True):
    """What we must know of a model to ask it well."""

    context_window: int = 200_000
    max_output_tokens: int = 32_000
    thinks: str = "adaptive"
    """adaptive: decides by itself; budget: takes a number of tokens; never."""
    takes_effort: bool = False
    reads_first: bool = False
    """Whether it must have read a file before it changes it, as recorded for older models."""
    takes_task_budget: bool = False
    knows_schemas: bool = False
    """Whether its backend itself holds an answer to a JSON Schema. Where not, a tool does, as recorded for Claude."""


# The first row whose words begin the name counts.
FACTS = (
    ("claude-opus-5", Facts(1_000_000, 128_000, takes_effort=True, takes_task_budget=True)),
    ("claude-fable-5", Facts(1_000_000, 128_000, takes_effort=True, takes_task_budget=True)),
    ("claude-sonnet-5", Facts(1_000_000, 128_000, takes_effort=True, takes_task_budget=True)),
    ("claude-haiku-5", Facts(1_000_000, 128_000, takes_effort=True, takes_task_budget=True)),
    ("claude-opus-4", Facts(200_000, 32_000, thinks="budget", reads_first=True)),
    ("claude-sonnet-4", Facts(200_000, 32_000, thinks="budget", reads_first=True)),
    ("claude-haiku-4", Facts(200_000, 32_000, thinks="budget", reads_first=True)),
    ("claude-3", Facts(200_000, 8_192, thinks="never", reads_first=True)),
    ("claude-", Facts()),
    ("gpt-5", Facts(400_000, 128_000, thinks="never", knows_schemas=True)),
    ("gpt-4.1", Facts(1_000_000, 32_768, thinks="never", knows_schemas=True)),
    ("gpt-4o", Facts(128_000, 16_384, thinks="never", knows_schemas=True)),
)
CHARS_PER_TOKEN = 4
"""A rough rule, for estimates only."""
UNKNOWN = Facts(200_000, 32_000, thinks="never")
"""Fields a backend may not know are not sent to a model we do not know."""


def facts(name: str) -> Facts:
    # Bedrock writes the maker, and where it runs, before the name: `us.anthropic.claude-...`
    name = name.rpartition("anthropic.")[2]
    return next((known for start, known in FACTS if name.startswith(start)), UNKNOWN)


def listing() -> list[Json]:
    """The models as the initialize answer lists them. Clients take the first as the current one."""
    titles = {"default": "Default", "opus": "Opus", "fable": "Fable", "sonnet": "Sonnet", "haiku": "Haiku"}
    rows: list[Json] = []
    for alias, title in titles.items():
        known = facts(ALIASES[alias])
        row: Json = {
            "value": alias,
            "resolvedModel": ALIASES[alias],
            "displayName": title,
            "description": f"{ALIASES[alias]} through the Messages API",
            "supportsEffort": known.takes_effort,
            "supportsAdaptiveThinking": known.thinks == "adaptive",
        }
        if known.takes_effort:
            row["supportedEffortLevels"] = ["low", "medium", "high", "xhigh", "max"]
        rows.append(row)
    offline = "The built-in puppet: follows directives in the prompt, needs no key and no network"
    return [*rows, {"value": BUILT_IN, "resolvedModel": BUILT_IN, "displayName": "Offline", "description": offline}]
