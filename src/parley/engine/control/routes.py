"""Which function answers each control request: the one with the name of its subtype, in the module of its area.

A handler takes the session and the request. It returns the payload of the success reply, or raises NotPossible. A slow
handler is a coroutine function; `dispatcher.py` awaits it. The module of a handler is imported with its first request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from parley.protocol.base import Struct
from parley.protocol.messages.requests import find_request

LOGIN = "Parley has no login of its own: set ANTHROPIC_API_KEY, apiKeyHelper or the key of another backend"
FEEDBACK = "feedback goes to a service of the vendor; Parley does not send any"
CHROME = "the browser extension belongs to the vendor; connect a browser through an MCP server instead"
NOT_OURS: dict[str, str] = {
    "remote_control": "remote control runs through servers of the vendor",
    "channel_enable": "channels run through servers of the vendor",
    "claude_authenticate": LOGIN,
    "claude_oauth_callback": LOGIN,
    "claude_oauth_wait_for_completion": LOGIN,
    "submit_feedback": FEEDBACK,
    "submit_survey_feedback": FEEDBACK,
    "message_rated": FEEDBACK,
    "ultrareview_launch": "the review runs on servers of the vendor",
    "set_chrome_browser_hints": CHROME,
    "get_chrome_dialog": CHROME,
    "get_chrome_browsers": CHROME,
    "select_chrome_browser": CHROME,
}
"""Why requests that need a service of the vendor are refused."""


class LongAnswer(Struct, frozen=True):
    """What a handler returns whose work takes long: the dispatcher reports its progress to the client."""

    run: Callable[[Callable[[Any], None]], Awaitable[Any]]
    """Gets the function that reports an `ApiRetry`, and returns the answer."""


def asks_a_model(subtype: str) -> bool:
    """Whether a request may cost money: the handlers of all that do are in one module."""
    found = find_request(subtype)
    return found is not None and found.area == "side"


def explain_refusal(subtype: str) -> str:
    """Why no handler exists for a request."""
    reason = NOT_OURS.get(subtype)
    if reason is None:
        return f"Unsupported control request subtype: {subtype}"
    return f"{subtype} is not available: {reason}"


def find_handler(subtype: str) -> Callable[[Any, Any], Any] | None:
    """The handler of a request; None if the request is not supported."""
    found = find_request(subtype)
    if found is None or not found.area:
        return None
    module = import_module(f"parley.engine.control.handlers.{found.area}")
    handler: Callable[[Any, Any], Any] = getattr(module, subtype)
    return handler
