"""The names of the official SDK's `types` module, for programs that import from there."""

from __future__ import annotations

from parley.sdk.blocks import *  # noqa: F403
from parley.sdk.hook_shapes import *  # noqa: F403
from parley.sdk.hooks import *  # noqa: F403
from parley.sdk.messages import *  # noqa: F403
from parley.sdk.options import *  # noqa: F403
from parley.sdk.permissions import *  # noqa: F403
from parley.sdk.shapes import *  # noqa: F403


def __getattr__(name: str) -> object:
    """What lives elsewhere because it loads more: sessions and stores."""
    import parley

    return getattr(parley, name)
