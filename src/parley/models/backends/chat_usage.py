"""The usage of the chat completions API in the Messages API's terms, or an estimate where a server tells none. Pure."""

from __future__ import annotations

from parley.models.catalog import CHARS_PER_TOKEN
from parley.protocol.base import Json

ESTIMATED = "parley_estimated"


def counted(usage: Json) -> Json:
    """Their usage in the Messages API's terms."""
    read = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return {
        "input_tokens": max(0, (usage.get("prompt_tokens") or 0) - read),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": read,
        "output_tokens": usage.get("completion_tokens") or 0,
        "output_tokens_details": {"thinking_tokens": thought},
        ESTIMATED: False,
    }


def estimate(input_chars: int, output_chars: int) -> Json:
    return {
        "input_tokens": input_chars // CHARS_PER_TOKEN,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_chars // CHARS_PER_TOKEN,
        ESTIMATED: True,
    }
