"""`/permissions`: the rules in effect; test what a call would be decided; add and remove rules.

/permissions                                pick a rule to remove it, or an action
/permissions test Bash git push origin      what would happen, and why
/permissions deny Bash(git push *)          add a rule; asks where it is kept
"""

from __future__ import annotations

from parley.permissions.rule import split_rule
from parley.protocol.base import Json
from parley.sdk.permissions import PermissionUpdate
from parley.terminal.base import View
from parley.terminal.interfaces.dialogs import Row
from parley.terminal.rendering.requests import PLACES, format_decision, parse_input
from parley.terminal.rendering.text import reveal_line, wrap

BEHAVIORS = {
    "allow": "run matching calls without asking",
    "ask": "always ask about matching calls",
    "deny": "never run matching calls",
}
DESTINATIONS = ("session", "localSettings", "projectSettings", "userSettings")
EXAMPLE = "Bash(git push *)"
TEST, ADD = "test", "add"


async def manage_rules(view: View, argument: str) -> None:
    word, _, rest = argument.partition(" ")
    if word == TEST:
        await test_call(view, rest.strip())
    elif word in BEHAVIORS:
        await add_rule(view, word, rest.strip())
    elif word:
        raise ValueError(f"unknown argument {word!r} (choose from {TEST}, {', '.join(BEHAVIORS)})")
    else:
        await show_rules(view)


async def show_rules(view: View) -> None:
    """Shows the rules until the person leaves."""
    while True:
        state = (await view.client.list_permission_rules()).get("state") or {}
        rules = state.get("rules") or []
        rows = [Row(TEST, "Test a call…"), Row(ADD, "Add a rule…")]
        rows += [describe_rule(index, rule) for index, rule in enumerate(rules)]
        title = f"Permission rules ({len(rules)}); pick one to remove it"
        picked = await view.choose(title, rows)
        if picked is None:
            return
        if picked.key == TEST:
            await test_call(view, "")
        elif picked.key == ADD:
            await add_rule(view, "", "")
        else:
            await remove_rule(view, rules[int(picked.key)])


def describe_rule(index: int, rule: Json) -> Row:
    source = PLACES.get(str(rule.get("source", "")), str(rule.get("source", "")))
    note = "" if rule.get("editability") == "editable" else ", cannot be changed here"
    return Row(str(index), f"{rule.get('behavior', ''):5} {rule.get('rule', '')}", f"{source}{note}")


async def test_call(view: View, text: str) -> None:
    text = text or await view.ask("Call to test, such as `Bash git push origin`: ") or ""
    if not text.strip():
        return
    name, _, given = text.strip().partition(" ")
    result = await view.client.check_permission(name, parse_input(name, given.strip()))
    if result.get("decision") == "ask":
        result = {**result, "outcome": "you are asked"}
    first, *more = format_decision(result)
    paint = {"allow": view.styles.good, "deny": view.styles.bad}.get(result.get("decision", ""), view.styles.warning)
    view.print([*map(paint, wrap(first, view.width)), *(line for part in more for line in wrap(part, view.width))])


async def add_rule(view: View, behavior: str, rule: str) -> None:
    if not behavior:
        kinds = [Row(name, name, about) for name, about in BEHAVIORS.items()]
        picked = await view.choose("What should the rule do?", kinds, search=False)
        if picked is None:
            return
        behavior = picked.key
    rule = rule or await view.ask(f"Rule, such as `{EXAMPLE}`: ") or ""
    if not rule.strip():
        return
    places = [Row(place, PLACES[place]) for place in DESTINATIONS]
    place = await view.choose(f"Keep `{behavior} {reveal_line(rule)}` …", places, search=False)
    if place is not None:
        await change(view, "addRules", {"behavior": behavior, "rule": rule, "source": place.key}, "Added")


async def remove_rule(view: View, rule: Json) -> None:
    if rule.get("editability") != "editable":
        view.say(f"{rule.get('rule')} cannot be changed here: it comes from {rule.get('source')}.")
        return
    what = f"{rule['behavior']} {reveal_line(str(rule['rule']))}"
    if await view.confirm(f"Remove `{what}` ({PLACES.get(str(rule['source']), rule['source'])})?"):
        await change(view, "removeRules", rule, "Removed")


async def change(view: View, kind: str, rule: Json, done: str) -> None:
    """Add or remove a rule. Raises ControlError, and ValueError if the rule is still there."""
    tool, content = split_rule(str(rule["rule"]).strip())
    update = PermissionUpdate.from_dict(
        {
            "type": kind,
            "rules": [{"toolName": tool, "ruleContent": content}],
            "behavior": rule["behavior"],
            "destination": rule["source"],
        }
    )
    state = (await view.client.update_permissions([update])).get("state") or {}
    place = PLACES.get(str(rule["source"]), str(rule["source"]))
    facts = ("behavior", "source", "rule")
    if kind == "removeRules" and any(all(one[fact] == rule[fact] for fact in facts) for one in state["rules"]):
        raise ValueError(f"{rule['rule']} could not be removed; edit the file where it is {place}")
    view.say(f"{done}: {rule['behavior']} {rule['rule']}, {place}")
