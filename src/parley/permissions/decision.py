"""The decision: one pure function for every call, whoever makes it and however it came in.

    deny rule > ask rule > whose tool it is > what is too grave > allow rule > mode > ask

`decide` gathers the facts of a call (assessment.py) and reads the answer off one table. The
table is also what docs/permissions.md shows.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from parley.permissions.assessment import Facts, gathered
from parley.permissions.base import Allow, Ask, Decision, Deny, Links, Request
from parley.permissions.budget import OverBudget
from parley.permissions.paths.filesystem import Glance
from parley.permissions.rule import Rule
from parley.permissions.rules import EDITORS, READERS, Rules
from parley.tools.selection import ALIASES
from parley.workspace.base import Reach

Verdict = Literal["allow", "ask", "deny"]

MODES: dict[str, dict[str, Verdict]] = {
    "default": {"harmless": "allow", "edit": "ask", "other": "ask", "hazard": "ask"},
    "acceptEdits": {"harmless": "allow", "edit": "allow", "other": "ask", "hazard": "ask"},
    "plan": {"harmless": "allow", "edit": "ask", "other": "ask", "hazard": "ask"},
    "bypassPermissions": {"harmless": "allow", "edit": "allow", "other": "allow", "hazard": "allow"},
    "dontAsk": {"harmless": "allow", "edit": "deny", "other": "deny", "hazard": "deny"},
    "auto": {"harmless": "allow", "edit": "allow", "other": "ask", "hazard": "ask"},
}
"""What a mode says where no rule does. `auto` is as careful as acceptEdits: no model decides here."""
ELSEWHERE = "The client runs this tool itself"
PLAN = "Plan mode changes nothing before the plan is approved"


def decide(request: Request, rules: Rules, mode: str, view: Links) -> Decision:
    """The first line that applies wins. A mode that is not known is taken for the default."""
    if request.tool in ALIASES:
        request = msgspec.structs.replace(request, tool=ALIASES[request.tool])
    facts = facts_of(request, rules, mode, view)
    if facts.deny is not None:
        return denied_by_rule(request, facts.deny)
    if request.asks_person:
        return must_ask(request, facts, mode, "")
    if facts.ask is not None:
        reason = f"The rule {facts.ask.text} ({facts.ask.source}) wants this to be asked"
        return must_ask(request, facts, mode, reason, "rule")
    if request.runs_elsewhere:
        return Allow(input=request.input, source="client", reason=ELSEWHERE, reason_type="other")
    if facts.grave:
        return must_ask(request, facts, mode, facts.grave, "safetyCheck")
    if mode == "plan" and request.plan_file is not None and facts.reach.files == (request.plan_file,):
        return Allow(input=request.input, source="mode", reason="plan file", reason_type="other", reach=facts.reach)
    if facts.allow is not None and not facts.hazard and not (mode == "plan" and facts.changes):
        return Allow(
            input=request.input,
            source="rule",
            reason=facts.allow.text,
            reason_type=facts.allow_type,
            rule=facts.allow,
            reach=facts.reach,
        )
    return by_mode(request, facts, mode)


def facts_of(request: Request, rules: Rules, mode: str, view: Links) -> Facts:
    """The facts of a call; of one that would cost too much to judge, only why, and what is said of its whole tool."""
    try:
        return gathered(request, rules, mode, Glance(view))
    except OverBudget as exc:
        deny, ask = rules.bare("deny", request.tool), rules.bare("ask", request.tool)
        return Facts(deny=deny, ask=ask, grave=str(exc), reach=Reach(anywhere=request.tool not in READERS | EDITORS))


def by_mode(request: Request, facts: Facts, mode: str) -> Decision:
    verdict = MODES.get(mode, MODES["default"])["hazard" if facts.hazard else facts.standing]
    if verdict == "allow":
        # Denies hold in every mode, so a single file stays the one that was judged.
        searches = bool(facts.reach.folders)
        reach = Reach(anywhere=True) if mode == "bypassPermissions" and searches else facts.reach
        kind = "subcommandResults" if request.tool == "Bash" and mode != "bypassPermissions" else "mode"
        return Allow(input=request.input, source="mode", reason=mode, reason_type=kind, reach=reach)
    if verdict == "deny":
        return unapproved(request, mode, facts.hazard or facts.reason)
    if facts.hazard:
        return Ask(reason=facts.hazard, reason_type="safetyCheck", blocked_path=facts.blocked_path, reach=facts.reach)
    if mode == "plan" and facts.changes:
        return Ask(reason=PLAN, reason_type="mode", reach=facts.reach)
    return Ask(
        reason=facts.reason,
        reason_type=facts.reason_type,
        suggestions=facts.suggestions,
        blocked_path=facts.blocked_path,
        reach=facts.reach,
    )


def must_ask(request: Request, facts: Facts, mode: str, reason: str, kind: str = "") -> Decision:
    """Nothing but a person's word is enough, and in dontAsk nobody is asked for it."""
    if mode == "dontAsk":
        return unapproved(request, mode, reason)
    return Ask(reason=reason, reason_type=kind, rule=facts.ask, blocked_path=facts.blocked_path, reach=facts.reach)


def unapproved(request: Request, mode: str, reason: str) -> Deny:
    text = f"{request.tool} was not approved in advance, and nobody is asked in the mode {mode}."
    text += f" It would have to be asked about: {reason}." if reason else ""
    return Deny(message=text, source="mode", reason=mode, reason_type="mode")


def denied_by_rule(request: Request, rule: Rule) -> Deny:
    kind = "subcommandResults" if request.tool == "Bash" and rule.spec is not None else "rule"
    text = f"{request.tool} was denied: the rule {rule.text} ({rule.source}) forbids it."
    return Deny(message=text, source="rule", reason=rule.text, reason_type=kind, rule=rule)
