"""What is to be known of a call before anything is decided: which rules fit it, and what it would touch.

One function a kind of tool; commands have a file of their own (command.py). Nothing is
decided here: decision.py has the table.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from parley.permissions import suggestions, web_hosts
from parley.permissions.base import Request, View, Way
from parley.permissions.paths.protected import holds_keys, is_protected
from parley.permissions.rule import Rule
from parley.permissions.rules import DELEGATES, EDITORS, READERS, Rules
from parley.protocol.base import Json, Struct
from parley.workspace.base import Reach
from parley.workspace.globs import split_prefix

Standing = Literal["harmless", "edit", "other"]
AGAINST: tuple[Literal["deny", "ask"], ...] = ("deny", "ask")
SEARCHES = frozenset({"Grep", "Glob", "LS"})
PATH_PARAMETERS = {
    **dict.fromkeys(SEARCHES, "path"),
    "NotebookEdit": "notebook_path",
    "NotebookRead": "notebook_path",
}
"""Which parameter names the file, where it is not `file_path`."""
OUTSIDE = "The path is outside of the working directories"
KEYS = "The path leads to keys or passwords"
ENDLESS = "The path leads from link to link and never ends"
PROTECTED = "The file decides what runs later, so no rule or mode approves it in advance"
NEAR_HOST = "The host is this machine, a neighbour, or a number that may be one"


class Facts(Struct, frozen=True, kw_only=True):
    deny: Rule | None = None
    ask: Rule | None = None
    grave: str = ""
    """Why even a session that bypasses permissions has to ask."""
    hazard: str = ""
    """Why no allow rule and no mode but bypass is enough."""
    allow: Rule | None = None
    allow_type: str = "rule"
    """What an allow by rule is called on the wire."""
    standing: Standing = "other"
    """What it is apart from rules: harmless, an edit in the working directories, or something else."""
    changes: bool = True
    """Whether it can change anything; plan mode puts that before a person."""
    reason: str = ""
    """Why it would be asked about, where the standing alone does not say it."""
    reason_type: str = ""
    reach: Reach = Reach(anywhere=True)
    """How far an allow goes that is about this very call."""
    blocked_path: str | None = None
    suggestions: tuple[Json, ...] = ()


def gathered(request: Request, rules: Rules, mode: str, view: View) -> Facts:
    """Everything that counts for a call. Rules for whole tools come before those for some calls."""
    facts = kind_of(request.tool)(request, rules, mode, view)
    tool, server = request.tool, request.server
    deny, ask = rules.bare("deny", tool, server), rules.bare("ask", tool, server)
    allow = rules.bare("allow", tool, server)
    if deny is None and ask is None and allow is None:
        return facts
    return msgspec.structs.replace(
        facts,
        deny=deny or facts.deny,
        ask=ask or facts.ask,
        allow=allow or facts.allow,
        allow_type="rule" if allow else facts.allow_type,
    )


def kind_of(tool: str) -> Callable[[Request, Rules, str, View], Facts]:
    if tool == "Bash" and tool not in KINDS:
        from parley.permissions.command import of_command

        KINDS[tool] = of_command
    return KINDS.get(tool, of_others)


# Files.


def of_reader(request: Request, rules: Rules, mode: str, view: View) -> Facts:
    paths = targets(request)
    ways = [view.way(path) for path in paths]
    inside = all(rules.is_at_hand(way, view) for way in ways)
    endless = any(way.real is None for way in ways)
    has_keys = any(holds_keys(name) for way in ways for name in way.names)
    searches = request.tool in SEARCHES
    against = {
        behavior: first(rules.against(behavior, way, request.tool, view, writing=False) for way in ways)
        for behavior in AGAINST
    }
    in_favour = [rules.in_favour(way, request.tool, view, writing=False) for way in ways]
    return Facts(
        deny=against["deny"],
        ask=against["ask"],
        hazard=ENDLESS if endless else "",
        allow=in_favour[-1] if all(in_favour) else None,
        standing="harmless" if inside and not has_keys else "other",
        changes=False,
        reason=OUTSIDE if not inside else KEYS if has_keys else "",
        reason_type="workingDir" if not inside else "other" if has_keys else "",
        reach=reach_of(ways, beneath=searches),
        suggestions=suggestions.to_read(paths[-1] if searches else os.path.dirname(paths[-1])),
    )


def first(found: Iterable[Rule | None]) -> Rule | None:
    return next((rule for rule in found if rule is not None), None)


def of_editor(request: Request, rules: Rules, mode: str, view: View) -> Facts:
    [path] = targets(request)
    way = view.way(path)
    inside = rules.is_inside(way, view)
    hazard = of_written(way, request, view)
    protected = hazard != ""
    return Facts(
        deny=rules.against("deny", way, request.tool, view, writing=True),
        ask=rules.against("ask", way, request.tool, view, writing=True),
        hazard=hazard,
        allow=rules.in_favour(way, request.tool, view, writing=True) or rules.whole(way, request.tool),
        standing="edit" if inside and not protected else "other",
        reason="" if inside else OUTSIDE,
        reason_type="" if inside else "workingDir",
        reach=reach_of([way], beneath=False),
        suggestions=() if protected else suggestions.to_edit(path, mode, inside=inside),
    )


def of_written(way: Way, request: Request, view: View) -> str:
    """Why no rule and no mode but bypass is enough to write a file."""
    if way.real is None:
        return ENDLESS
    if any(map(is_protected, way.names)):
        return PROTECTED
    from parley.permissions.paths.programs import shadows

    return shadows([way], request, view)


def targets(request: Request) -> list[str]:
    """The absolute paths a file tool is about."""
    input = request.input
    value = input.get(PATH_PARAMETERS.get(request.tool, "file_path"))
    given = value if isinstance(value, str) else ""
    path = os.path.join("/", request.cwd, given) if given else request.cwd
    pattern = input.get("pattern")
    if request.tool == "Glob" and isinstance(pattern, str) and (prefix := split_prefix(pattern)[0]):
        # A pattern may climb out of its folder, or start anywhere.
        return [path, os.path.join(path, prefix)]
    return [path]


def reach_of(ways: Sequence[Way], *, beneath: bool) -> Reach:
    """Exactly what was judged: a name that leads elsewhere a moment later is not followed."""
    reals = tuple(way.real for way in ways if way.real is not None)
    return Reach(folders=reals, files=reals) if beneath else Reach(files=reals)


# The network, delegates, and all the rest.


def of_web(request: Request, rules: Rules, mode: str, view: View) -> Facts:
    url = request.input.get("url")
    host = web_hosts.host_of(url) if isinstance(url, str) else None
    if host is None:
        return Facts(hazard="The URL cannot be read", changes=False)
    near = web_hosts.is_near(host)
    return Facts(
        deny=rules.on_host("deny", request.tool, host),
        ask=rules.on_host("ask", request.tool, host),
        hazard=NEAR_HOST if near else "",
        allow=rules.on_host("allow", request.tool, host),
        changes=False,
        suggestions=() if near else suggestions.to_fetch(host),
    )


def of_delegate(request: Request, rules: Rules, mode: str, view: View) -> Facts:
    """Who does the work is judged call by call, so handing it on is harmless; a skill's words are not ours."""
    facts = of_input(request, rules)
    return msgspec.structs.replace(
        facts,
        standing="harmless" if request.tool == "Task" else "other",
        changes=False,
        suggestions=suggestions.to_delegate(request.tool, request.input.get(DELEGATES[request.tool])),
    )


def of_others(request: Request, rules: Rules, mode: str, view: View) -> Facts:
    is_mcp = request.tool.startswith("mcp__")
    # What a server says of its tools is its own claim: it spares the plan, not the question.
    harmless = request.tool in SESSION_TOOLS or (request.reads_only and not is_mcp)
    return msgspec.structs.replace(
        of_input(request, rules),
        standing="harmless" if harmless else "other",
        changes=not request.reads_only and request.tool not in SESSION_TOOLS | READING_TOOLS,
        suggestions=suggestions.to_use(request.tool),
    )


def of_input(request: Request, rules: Rules) -> Facts:
    return Facts(
        deny=rules.on_input("deny", request.tool, request.input, request.server),
        ask=rules.on_input("ask", request.tool, request.input, request.server),
        allow=rules.on_input("allow", request.tool, request.input, request.server),
    )


SESSION_TOOLS = frozenset({"TaskStop", "TaskOutput", "TodoWrite", "EnterPlanMode"})
"""They act on what the session itself has started or noted down."""
READING_TOOLS = frozenset({"WebSearch"})
"""They carry words out of the machine, but change nothing."""
KINDS: dict[str, Callable[[Request, Rules, str, View], Facts]] = {
    **dict.fromkeys(READERS, of_reader),
    **dict.fromkeys(EDITORS, of_editor),
    **dict.fromkeys(DELEGATES, of_delegate),
    "WebFetch": of_web,
}
