"""HTTP hooks from settings: the input is posted as JSON, the body of the reply is the output.

    2xx, a JSON object    the output, as on the stdout of a command
    2xx, empty            no effect
    2xx, other text       context for the model, for events that accept text; otherwise ignored, or a failure if the
                          failure of the hook blocks: a proxy, too, answers with status 200
    any other status      failure; `onFailure` decides
    no reply              failure

`allowedHttpHookUrls` limits the URLs, `allowedEnvVars` and `httpHookAllowedEnvVars` the variables in headers. A
`Content-Length` or `Transfer-Encoding` among the headers is ignored. The address is checked as that of a WebFetch call
is, and redirects are not followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from parley.hooks.base import HookInvocation, HookRun, HookServices, Progress
from parley.hooks.command import decode_output, parse_reply
from parley.hooks.entry import HandlerHook, HookEntry
from parley.hooks.output import HookFailed
from parley.protocol.base import Json, Struct

VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
HOST = re.compile(r"https?://(\[[^\]/]*\]|[^:/]*)")
MAX_ERROR_CHARS = 500
OF_THE_BODY = ("content-length", "transfer-encoding")
"""Headers that follow from the body that is sent; others would cut it or add to it."""


class HttpHookPolicy(Struct, frozen=True, kw_only=True):
    """What the settings permit to http hooks. None means no limit."""

    urls: tuple[str, ...] | None = None
    """`allowedHttpHookUrls`: patterns with `*`."""
    is_exempt: bool = False
    """Whether `urls` lists only what a user adds for the hook of an administrator, and refuses nothing."""
    variables: frozenset[str] | None = None
    """`httpHookAllowedEnvVars`."""

    def allows(self, url: str) -> bool:
        return self.urls is None or self.is_exempt or any(matches_pattern(pattern, url) for pattern in self.urls)

    def lists_host(self, url: str) -> bool:
        """Whether a pattern that matches names the host, without a wildcard in it."""
        return any(is_plain_host(pattern) and matches_pattern(pattern, url) for pattern in self.urls or ())


class HttpEntry(HookEntry, frozen=True, kw_only=True):
    kind: ClassVar[str] = "http"
    url: str
    headers: dict[str, str] = {}
    variables: frozenset[str] = frozenset()
    """`allowedEnvVars`: the variables that header values may contain."""

    @property
    def subject(self) -> str:
        return without_secrets(self.url)

    def own_json(self) -> Json:
        # Header values may hold secrets.
        return {"url": without_secrets(self.url), **({"headers": sorted(self.headers)} if self.headers else {})}


class HttpHook(HandlerHook[HttpEntry]):
    def __init__(
        self,
        entry: HttpEntry,
        services: HookServices,
        get_policy: Callable[[], HttpHookPolicy],
        environment: Mapping[str, str],
    ) -> None:
        super().__init__(entry)
        self._services = services
        self._get_policy = get_policy
        self._environment = environment

    async def call(self, invocation: HookInvocation, progress: Progress) -> HookRun:
        entry, policy = self.entry, self._get_policy()
        if not policy.allows(entry.url):
            raise HookFailed(f"the URL {entry.subject} does not match allowedHttpHookUrls")
        headers = {"content-type": "application/json", **self._expand_headers(policy)}
        body = msgspec.json.encode(invocation.input)
        is_listed = policy.lists_host(entry.url)
        reply = await self._services.post(entry.url, headers, body, is_listed=is_listed)
        text = decode_output(reply.body).strip()
        if not 200 <= reply.status < 300:
            raise HookFailed(
                f"{entry.subject} answered with status {reply.status}: {text[:MAX_ERROR_CHARS]}".rstrip(": ")
            )
        output, unknown = parse_reply(invocation.event, reply.body, guards=self.guards, may_be_text=False)
        return HookRun(output=output, unknown=unknown, stdout=text)

    def _expand_headers(self, policy: HttpHookPolicy) -> dict[str, str]:
        """The headers with the values of permitted variables. Raises HookFailed for a value that is not a header."""
        names = self.entry.variables if policy.variables is None else self.entry.variables & policy.variables
        environment = self._environment

        def value(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            return environment.get(name, "") if name in names else ""

        given = {name: text for name, text in self.entry.headers.items() if name.lower() not in OF_THE_BODY}
        expanded = {name: VARIABLE.sub(value, text) for name, text in given.items()}
        for name, text in expanded.items():
            if re.search(r"[\r\n\0]", text) or not text.isascii():
                raise HookFailed(f"the value of the header {name!r} contains characters that a header cannot have")
        return expanded


def matches_pattern(pattern: str, url: str) -> bool:
    """Whether a URL matches a pattern; `*` in the part before the path matches nothing that ends a host."""
    base, slash, path = split_url(pattern)
    own_base, own_slash, own_path = split_url(url)
    if not glob(base, r"[^/@?#\\]*").fullmatch(own_base):
        return False
    return not slash or (bool(own_slash) and glob(path, ".*").fullmatch(own_path) is not None) or path in ("", "*")


def split_url(url: str) -> tuple[str, str, str]:
    """Scheme and host, the first slash after them, and the rest."""
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host}".lower(), slash, path


def glob(pattern: str, any_text: str) -> re.Pattern[str]:
    return re.compile(any_text.join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def is_plain_host(pattern: str) -> bool:
    found = HOST.match(pattern)
    return found is not None and bool(found[1]) and "*" not in found[1]


def without_secrets(url: str) -> str:
    """The URL without a query and without a user, which may be secrets."""
    plain = url.partition("?")[0].partition("#")[0]
    return re.sub(r"//[^/@]*@", "//", plain)


def merge_lists(lists: Sequence[Sequence[str] | None]) -> tuple[str, ...] | None:
    """The lists of all settings files together; None if no file has one."""
    given = [items for items in lists if items is not None]
    return tuple(dict.fromkeys(item for items in given for item in items)) if given else None
