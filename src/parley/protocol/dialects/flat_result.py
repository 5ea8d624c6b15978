"""The result of a turn in the dialect spec001, and back: other subtypes, flat token counts, one error object.

    ours                                        there
    success                                     success
    error_max_turns                             max_turns_reached
    a budget that is spent                      budget_exceeded
    terminal_reason aborted_*                   user_cancelled
    anything else that is an error              error, with error{type, message, details}

Our other fields stay: a reader of that dialect ignores unknown fields.
"""

from __future__ import annotations

import msgspec

from parley.protocol.base import UNSET, Json, to_builtins
from parley.protocol.messages.result import Result

FLAT = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_creation_tokens": "cache_creation_input_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
}
"""The flat names, and their names in `usage`."""
FAILED, UNFORMED = "error_during_execution", "error_max_structured_output_retries"
LIMITS = {"error_max_turns": "max_turns_reached", "error_max_budget_usd": "budget_exceeded"}
FOUND = {there: ours for ours, there in LIMITS.items()}
API, DENIED, INVALID, SYSTEM = "api_error", "permission_denied", "validation_error", "system_error"
FAULTS = (INVALID, "tool_error", SYSTEM)


def flatten(result: Result) -> Json:
    """A result in the dialect."""
    frame: Json = to_builtins(result)
    frame["subtype"] = subtype(result)
    usage = result.usage if isinstance(result.usage, dict) else {}
    frame |= {flat: usage.get(name) or 0 for flat, name in FLAT.items()}
    if frame["subtype"] == "error":
        frame["error"] = error(result)
    return frame


def subtype(result: Result) -> str:
    if result.subtype in LIMITS:
        return LIMITS[result.subtype]
    if result.terminal_reason == "budget_exhausted":
        return "budget_exceeded"
    is_error = result.is_error is True
    if is_error and isinstance(result.terminal_reason, str) and result.terminal_reason.startswith("aborted_"):
        return "user_cancelled"
    return "error" if is_error or result.subtype != "success" else "success"


def error(result: Result) -> Json:
    errors = result.errors if isinstance(result.errors, list) else []
    words = "; ".join(errors) or (result.result if isinstance(result.result, str) else "") or result.subtype
    details: Json = {"errors": errors} if len(errors) > 1 else {}
    if isinstance(result.api_error_status, int):
        details["status"] = result.api_error_status
    if result.subtype == UNFORMED:
        details["subtype"] = result.subtype
    return {"type": error_type(result), "message": words, "details": details}


def error_type(result: Result) -> str:
    """The type of the error."""
    if isinstance(result.fault_type, str):
        return result.fault_type
    if result.subtype == "success" or result.terminal_reason == API:
        return API  # the backend failed
    if result.subtype == UNFORMED:
        return INVALID
    if result.terminal_reason == "permission_denied":
        return DENIED
    # A turn without a reason for its end had an invalid request.
    return INVALID if result.terminal_reason is UNSET and not result.num_turns else SYSTEM


def canonical(result: Result) -> Result:
    """A result of the dialect as a canonical one."""
    changes: Json = {"is_error": result.subtype != "success"} if result.is_error is UNSET else {}
    for name in ("duration_ms", "duration_api_ms"):
        if getattr(result, name) is UNSET:
            changes[name] = 0
    counted = {name: getattr(result, flat) for flat, name in FLAT.items() if isinstance(getattr(result, flat), int)}
    if result.usage is UNSET and counted:
        changes["usage"] = counted
    if result.subtype == "user_cancelled":
        changes["subtype"] = FAILED
        changes["terminal_reason"] = result.terminal_reason or "aborted_streaming"
    elif result.subtype == "error":
        changes |= read_error_fields(result, result.error if isinstance(result.error, dict) else {})
    else:
        changes["subtype"] = FOUND.get(result.subtype, result.subtype)
    flat = dict.fromkeys((*FLAT, "error", "timestamp"), UNSET)
    return msgspec.structs.replace(result, **flat, **changes)


def read_error_fields(result: Result, told: Json) -> Json:
    """The fields of an error object in the canonical result."""
    kind, details = told.get("type"), told.get("details")
    details = details if isinstance(details, dict) else {}
    text_only = kind == API and isinstance(result.result, str)
    changes: Json = {"subtype": "success" if text_only else details.get("subtype") or FAILED}
    if not text_only and result.errors is UNSET:
        errors = details.get("errors")
        changes["errors"] = errors if isinstance(errors, list) else [str(told.get("message", ""))]
    if kind in (DENIED, API) and result.terminal_reason is UNSET and not text_only:
        changes["terminal_reason"] = kind
    elif kind in FAULTS and result.fault_type is UNSET:
        changes["fault_type"] = kind
    if isinstance(details.get("status"), int) and result.api_error_status is UNSET:
        changes["api_error_status"] = details["status"]
    return changes
