"""The Anthropic Messages API at any base URL. Events are passed on byte for byte.

Servers with bearer tokens (gateways) may send rate limits (`anthropic-ratelimit-unified-*`). With a plain API key
Claude Code ignores these headers, and so do we. A server may know another form of thinking than the one that is
expected of a model (`ThinkingForms`): the other form is then tried, because without the field the model would not
think at all.

See also: `cloud.py` for the same API on clouds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import contains
from typing import Any, ClassVar

import msgspec

from parley.errors import ModelError
from parley.models.backends.base import BAD_REQUEST, AnswerStream, HttpModel
from parley.models.backends.reasoning_items import without_reasoning_items
from parley.models.base import DEFER, REFERENCE, ModelEvent, ModelRequest, attach_endings, join_texts
from parley.models.catalog import model_info, without_long_context
from parley.models.encoding import Pieces, PrefixEncoder, encode_object
from parley.models.endpoint import ModelEndpoint
from parley.protocol.base import UNSET, Json, Number, UnsetType
from parley.protocol.messages.notices import RateLimitInfo

API_VERSION = "2023-06-01"
CACHE_MARK = "cache_control"
MAX_PREFIX_MARKERS = 2
EFFORT = "effort"
SAMPLING = ("temperature", "top_p", "top_k")
NO_SAMPLING_VERSION = "2026-10-21"
"""The version of the API from which on no model takes sampling parameters."""
OPTIONAL = ("thinking", "output_config", "metadata", CACHE_MARK, *SAMPLING)
"""Fields of the API that compatible servers may not support."""
DEFERRAL = (DEFER, REFERENCE)
"""They need each other, so both are left out if a server does not support one."""
BETA_HEADER = "anthropic-beta"
TASK_BUDGET_BETA = "task-budgets-2026-03-13"
TOOL_SEARCH_BETA = "advanced-tool-use-2025-11-20"
UNKNOWN_FIELD = r"(?i)extra (inputs|fields|parameters|arguments)|additional propert"
"""The server knows no form of the field."""
REJECTED_FORM = (
    r"(?is)thinking\.type|\bthinking\b.*\btags?\b"
    r"|\b(adaptive|extended|manual|budget_tokens|between_tools)\b.*\b(not (supported|available|allowed)|unsupported)"
)
MAX_REASON_CHARS = 2_000
"""How much of an error is searched for the form: the search is slow in long texts."""
OTHER_FORMS = {"enabled": "adaptive", "adaptive": "enabled", "disabled": None, "between_tools": None}
"""What is sent instead of a form of thinking: another one, or no field."""
QUOTA_PREFIX = "anthropic-ratelimit-unified-"
QUOTA_WINDOWS = {
    "five_hour": "5h",
    "seven_day": "7d",
    "seven_day_opus": "7d_opus",
    "seven_day_sonnet": "7d_sonnet",
    "overage": "overage",
}
"""The header prefix of each window."""


class Anthropic(HttpModel):
    """A Messages API server."""

    service: ClassVar[str] = "anthropic"
    path: ClassVar[str] = "/v1/messages"
    headers: ClassVar[Mapping[str, str]] = {"anthropic-version": API_VERSION}
    request_id_header: ClassVar[str] = "request-id"

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._forms = ThinkingForms(self._warn)
        self._converts_for: frozenset[str] = frozenset()
        """The dropped fields that messages and tools are converted for."""
        self._messages = PrefixEncoder(convert_message)
        self._tools = PrefixEncoder()

    def adapt_request(self, request: ModelRequest, endpoint: ModelEndpoint) -> ModelRequest:
        version = endpoint.headers.get("anthropic-version", API_VERSION)
        if version >= NO_SAMPLING_VERSION or not model_info(request.model).takes_sampling:
            # Those of CLAUDE_CODE_EXTRA_BODY would be rejected.
            for name in SAMPLING:
                if name in endpoint.extra_body and name not in self.dropped.names:
                    self.dropped.drop(name, f"{name!r} is not sent: {request.model} does not take it")
        return self._forms.apply(request)

    def switch_form(self, exc: ModelError, sent: ModelRequest) -> bool:
        return self._forms.switch(exc, sent)

    def build_headers(self, request: ModelRequest, endpoint: ModelEndpoint) -> dict[str, str]:
        fields = super().build_headers(request, endpoint)
        if betas := collect_betas(request, self.dropped.names):
            fields[BETA_HEADER] = ",".join(betas)
        return fields

    def encode_body(self, request: ModelRequest, endpoint: ModelEndpoint, dropped: Collection[str]) -> Pieces:
        if dropped != self._converts_for:
            self._converts_for = dropped = frozenset(dropped)
            self._messages = PrefixEncoder(partial(convert_message, dropped=dropped))
            self._tools = PrefixEncoder(partial(convert_tool, dropped=dropped))
        body = build_body(request, endpoint.extra_body)
        encoders = {"messages": self._messages, "tools": self._tools}
        lists = {name: [encoder.encode(body[name])] for name, encoder in encoders.items() if name in body}
        fields = drop_fields({name: [] if name in lists else value for name, value in body.items()}, dropped)
        return encode_object(fields, lists)

    def list_optional(self, request: ModelRequest, endpoint: ModelEndpoint) -> Iterator[str]:
        dropped = self.dropped.names
        fields = drop_fields(build_body(request, endpoint.extra_body), dropped)
        return optional_fields(fields, collect_betas(request, dropped))

    def arrange(self, events: Iterator[ModelEvent], batch: list[bytes], request: ModelRequest) -> Iterator[ModelEvent]:
        if len(batch) > 1:
            if request.joins_texts:
                events = join_texts(events)
            if any(b"message_stop" in data for data in batch[-2:]):  # some servers send one more event
                events = attach_endings(events)
        return events

    def describe_start(self, event: ModelEvent, headers: Mapping[str, str], endpoint: ModelEndpoint) -> None:
        super().describe_start(event, headers, endpoint)
        event.quota = parse_quota(headers) if has_quota(endpoint) else None

    def explain_error(self, exc: ModelError, stream: AnswerStream, endpoint: ModelEndpoint) -> None:
        if not has_quota(endpoint):
            exc.quota = None

    def parse_error(self, status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
        return parse_error(status, headers, content)


class ThinkingForms:
    """The forms of thinking that the server rejected for a model, and what it gets instead."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._rejected: set[tuple[str, str]] = set()
        """The name of a model, and a type of thinking."""
        self._warn = warn

    def apply(self, request: ModelRequest) -> ModelRequest:
        """The request in the form that the server accepts."""
        if request.thinking is None or (request.model, request.thinking["type"]) not in self._rejected:
            return request
        other = OTHER_FORMS[request.thinking["type"]]
        kept = {key: value for key, value in request.thinking.items() if key == "display"}
        budget = {"budget_tokens": request.max_tokens - 1} if other == "enabled" else {}
        thinking = None if other is None else {"type": other, **budget, **kept}
        return msgspec.structs.replace(request, thinking=thinking)

    def switch(self, exc: ModelError, sent: ModelRequest) -> bool:
        """Whether the error rejects the form of thinking that was sent, and there is one that was not rejected."""
        form = "" if sent.thinking is None else sent.thinking["type"]
        other = OTHER_FORMS.get(form, form)
        if exc.status not in BAD_REQUEST or other == form or (sent.model, other) in self._rejected:
            return False
        reason = exc.message[:MAX_REASON_CHARS]
        if re.search(UNKNOWN_FIELD, reason) or not re.search(REJECTED_FORM, reason):
            return False
        self._rejected.add((sent.model, form))
        instead = "no thinking field" if other is None else f"thinking {other!r}"
        self._warn(
            f"warning: the server of {sent.model} rejected thinking {form!r} ({reason[:200]}); it gets {instead}"
        )
        return True


def build_body(request: ModelRequest, extra: Json) -> Json:
    """The request body. The order of keys is fixed, because a changed prefix would miss the prompt cache."""
    fields: Json = {"model": without_long_context(request.model), "max_tokens": request.max_tokens}
    if request.system:
        fields["system"] = request.system
    if request.tools:
        fields["tools"] = request.tools
    if request.thinking is not None:
        fields["thinking"] = request.thinking
    if output := output_config(request):
        fields["output_config"] = output
    if request.session_id:
        fields["metadata"] = {"user_id": request.session_id}
    if extra:
        fields = limit_markers({**fields, **extra})
    return {**fields, "messages": request.messages, "stream": True}


def limit_markers(fields: Json) -> Json:
    """The fields with as many cache markers as a request can have: the messages have at most two, so two are left.

    The end of the messages has one, so the marker for the whole request is left out.
    """
    marked = [one for name in ("tools", "system") for one in fields.get(name) or () if CACHE_MARK in one]
    removed = {id(one) for one in marked[:-MAX_PREFIX_MARKERS]}
    return {
        name: [without_cache_mark(one) if id(one) in removed else one for one in value]
        if name in ("tools", "system") and isinstance(value, list)
        else value
        for name, value in fields.items()
        if name != CACHE_MARK
    }


def collect_betas(request: ModelRequest, dropped: Collection[str]) -> list[str]:
    """The requested betas and those that the body needs, without the unsupported ones."""
    if BETA_HEADER in dropped:
        return []
    known = model_info(request.model)
    needed = [*known.betas, *([TASK_BUDGET_BETA] if request.task_budget is not None else [])]
    if request.thinking is not None and request.thinking["type"] == "enabled":
        needed += known.thinking_betas
    if any(map(contains, request.tools, repeat(DEFER))) and not drops_deferral(dropped):
        needed.append(TOOL_SEARCH_BETA)
    return [beta for beta in dict.fromkeys([*request.betas, *needed]) if beta not in dropped]


def output_config(request: ModelRequest) -> Json:
    fields: Json = {}
    if request.effort is not None:
        fields[EFFORT] = request.effort
    if request.task_budget is not None:
        fields["task_budget"] = {"type": "tokens", "total": request.task_budget}
    if request.output_schema is not None:
        fields["format"] = {"type": "json_schema", "schema": request.output_schema}
    return fields


def drop_fields(fields: Json, dropped: Collection[str]) -> Json:
    """The body without unsupported fields."""
    if not dropped:
        return fields
    remaining = {name: value for name, value in fields.items() if name not in dropped}
    if EFFORT in dropped and (output := remaining.pop("output_config", None)):
        rest = {name: value for name, value in output.items() if name != EFFORT}
        remaining |= {"output_config": rest} if rest else {}
    if drops_deferral(dropped):
        from parley.models.tool_references import replace_references

        remaining["tools"] = [without_deferral(tool) for tool in fields.get("tools", ())]
        remaining["messages"] = replace_references(fields["messages"])
    return without_cache_mark(remaining) if CACHE_MARK in dropped else remaining


def convert_message(message: Json, dropped: Collection[str] = ()) -> list[Json]:
    """What is sent for a message: without what only the Responses API takes back, and without unsupported fields."""
    found = without_reasoning_items(message)
    if drops_deferral(dropped):
        from parley.models.tool_references import replace_references

        found = replace_references(found)
    return [without_cache_mark(one) for one in found] if CACHE_MARK in dropped else found


def convert_tool(tool: Json, dropped: Collection[str]) -> list[Json]:
    """What is sent for a tool: without unsupported fields."""
    found = without_deferral(tool) if drops_deferral(dropped) else tool
    return [without_cache_mark(found) if CACHE_MARK in dropped else found]


def without_deferral(tool: Json) -> Json:
    return {key: value for key, value in tool.items() if key != DEFER}


def drops_deferral(dropped: Collection[str]) -> bool:
    return bool(dropped) and any(name in dropped for name in DEFERRAL)


def without_cache_mark(value: Any) -> Any:
    """The same JSON without cache markers at any depth."""
    if isinstance(value, dict):
        return {name: without_cache_mark(inner) for name, inner in value.items() if name != CACHE_MARK}
    return [without_cache_mark(inner) for inner in value] if isinstance(value, list) else value


def optional_fields(fields: Json, betas: Sequence[str]) -> Iterator[str]:
    """The optional fields that were sent, including nested cache markers."""
    yield from betas
    if betas:
        yield BETA_HEADER
    # Without its schema the answer would differ, so it is not optional.
    output = fields.get("output_config", {})
    has_schema = "format" in output
    if EFFORT in output:
        yield EFFORT
    yield from (name for name in OPTIONAL if name in fields and not (name == "output_config" and has_schema))
    if any(DEFER in tool for tool in fields.get("tools", ())):
        yield from DEFERRAL
    if CACHE_MARK.encode() in msgspec.json.encode(fields):
        yield CACHE_MARK


def has_quota(endpoint: ModelEndpoint) -> bool:
    """Whether rate limit headers apply. They do not apply to a plain API key."""
    return endpoint.auth is not None and endpoint.auth[0] == "authorization"


def parse_error(status: int, headers: Mapping[str, str], content: bytes) -> ModelError:
    """The error of a response other than 200."""
    from parley.models.failures import parse_refusal

    error = parse_refusal(status, headers, content)
    error.quota = quota = parse_quota(headers)
    if status == 429 and quota is not None and quota.status == "rejected":
        error.retryable = False  # the window reopens only after hours
    return error


def parse_quota(headers: Mapping[str, str]) -> RateLimitInfo | None:
    """The rate limit status; None if there are no such headers."""
    status = headers.get(f"{QUOTA_PREFIX}status")
    if not status:
        return None
    claim = headers.get(f"{QUOTA_PREFIX}representative-claim")
    window = f"{QUOTA_PREFIX}{QUOTA_WINDOWS.get(claim or '', claim)}"
    threshold = parse_number(headers.get(f"{window}-surpassed-threshold"))
    if status == "allowed" and threshold is not UNSET:
        status = "allowed_warning"
    is_warning = status == "allowed_warning"
    return RateLimitInfo(
        status=status,
        resetsAt=parse_number(headers.get(f"{QUOTA_PREFIX}reset")),
        rateLimitType=claim or UNSET,
        utilization=parse_number(headers.get(f"{window}-utilization")) if is_warning else UNSET,
        overageStatus=headers.get(f"{QUOTA_PREFIX}overage-status") or UNSET,
        overageResetsAt=parse_number(headers.get(f"{QUOTA_PREFIX}overage-reset")),
        overageDisabledReason=headers.get(f"{QUOTA_PREFIX}overage-disabled-reason") or UNSET,
        isUsingOverage=headers.get(f"{QUOTA_PREFIX}overage-in-use") == "true",
        surpassedThreshold=threshold if is_warning else UNSET,
    )


def parse_number(text: str | None) -> Number | UnsetType:
    try:
        value = float(text) if text else None
    except ValueError:
        return UNSET
    if value is None:
        return UNSET
    return int(value) if value.is_integer() else value
