"""The names of the official SDK's `types` module, for programs that import from there."""

from __future__ import annotations

from parley.hooks.event_types import *  # noqa: F403
from parley.sdk.hooks import *  # noqa: F403
from parley.sdk.options import *  # noqa: F403
from parley.sdk.permissions import *  # noqa: F403
from parley.sdk.types.agents import *  # noqa: F403
from parley.sdk.types.messages import *  # noqa: F403
from parley.sdk.types.shapes import *  # noqa: F403


def __getattr__(name: str) -> object:
    """Load session and store types on first use, because their modules import more."""
    import parley

    return getattr(parley, name)
