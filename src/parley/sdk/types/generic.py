"""Type variables with defaults, so that `Options`, `Client` and `HookMatcher` need no parameters.

At run time they have no default: Python 3.11 has none, and nothing there needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from parley.hooks.event_types import HookInput

    OutputT = TypeVar("OutputT", default=Any)
    InputT_contra = TypeVar("InputT_contra", contravariant=True, default=HookInput)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")
    InputT_contra = TypeVar("InputT_contra", contravariant=True)
