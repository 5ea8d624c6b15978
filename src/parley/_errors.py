"""The names of the official SDK's `_errors` module, for programs that import from there."""

from parley.sdk.errors import *  # noqa: F403
