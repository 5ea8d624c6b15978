"""docs/hooks.md, made from the tables that the code goes by.

python scripts/gen_hooks.py      writes docs/hooks.md
"""

from __future__ import annotations

from pages import main, table

from parley.hooks.answer import MOST_REASON_CHARS
from parley.hooks.base import DEFAULT_SECONDS, EVENTS, MOST_CONTEXT_CHARS, Event
from parley.hooks.merge import RULES

INTRODUCTION = f"""\
# Hooks

Made by `make docs`; do not edit. Every row of the second table has a test.

A hook is told of an event and may have a say in it. There are two carriers, for the same events:

- **Callbacks of the host**, registered in `initialize.hooks` and asked with `hook_callback`. A second `initialize`
  puts its hooks in the place of the first one's.
- **Commands of the settings**, under `hooks`. Those of a project run only if it is trusted (`docs/settings.md`);
  `disableAllHooks` switches all commands off.

A command is told everything. What a callback is told fits into a line of a megabyte, which is what clients can read: of
longer texts the beginning, with the number of characters that are missing, and a warning on stderr. A PreToolUse
callback that saw only a part of an input can deny the call; any other answer is a failure. Of reasons, messages and
the like the first {MOST_REASON_CHARS:,} characters count.

All hooks of an event are asked at the same time, and what happens next waits for all of them: a tool does not start
before its hooks are done. Each has {DEFAULT_SECONDS:g} s, or its own `timeout` in seconds. A hook fails if it ends
with an error, gives an answer that cannot be understood, gives none in time, or if its host has gone. The failure is
reported on stderr and in its `hook_response`, and `onFailure` says what follows: `block` blocks what the hook guards,
`continue` is as if there were no such hook. **The default is `block` for PreToolUse**: a call whose guard did not
answer is denied, and the reason goes to the model and the host. For all other events it is `continue`. An interrupt
withdraws all open questions with `control_cancel_request`.

**A hook that redacts** what tools put out (`updatedToolOutput`) should say `onFailure: block`. Then an output that it
could not look at is withheld, from the model, the host and the transcript alike: the result says that the call ran and
that its output is withheld. So it is when the hook fails, when its host has gone, and when an interrupt or a signal
cuts it off. With `continue` the output is told as the tool gave it in all these cases: most hooks behind a call only
look on, and that one of them was cut off must not cost the model what a command has done. What commands in the
background write, and what is too long and saved, reaches the model by other calls (TaskOutput, Read): a matcher for
Bash alone does not see those.

`matcher` is compared with the field in the first table: empty or `*` fits everything, `Edit|Write` fits these names
(a comma does as well), anything else is a regular expression that is searched for in the name (one that is none fits
everything, and stderr says so). `Task` and `Agent` are one tool.

## Events
"""
EXAMPLE = """
{"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh", "timeout": 10}]}]}}
""".strip()
OUTPUT = """
Every input also has `session_id`, `transcript_path`, `cwd`, `prompt_id` and `hook_event_name`; those marked with * have
`permission_mode`, those marked with ** also `effort` if one is set. Inside a subagent there is `agent_id`, and
about a tool of an MCP server there is `mcp_server` (its `name` and `source`). Callbacks
are not asked about a SessionStart of the kind `startup`, `resume` or `fork`: the host knows that it has started us.
SessionEnd has two seconds in all. Events that are not listed may be registered and never fire, which is reported on
stderr and, where the name may be misspelt, as `system/informational`. If one of them has `onFailure: block` or may be a
misspelt PreToolUse, `initialize` is answered with `hooks_applied: false`.

## Answers

An answer is a JSON object; `{}` is no opinion. Keys that no answer to the event has are reported by name, on stderr
and as `system/informational`, once for each hook. A PreToolUse answer that has such keys and no decision is a
failure, since the decision may be misspelt or in the wrong place (`permisionDecision`, `permissionDecision` at the
top level); so is one that has such a key beside an allow, and one whose `hookEventName` names another event. What the
official SDKs declare is known, also where it has no effect here. Where several hooks answer, their answers count in the
order of their registration, callbacks first:
"""
REST = f"""
- **Permission.** The order is: deny rule > PreToolUse > ask rule > allow rule > mode > `can_use_tool` and
  PermissionRequest. A hook may deny and ask whatever it likes. Its allow spares a question that only the mode would
  ask: it opens nothing that a rule denies or wants asked, no protected file, no question to a person, and nothing
  while `--guard` is on. An input that a hook changed is checked and judged again; a deny rule for the old one still
  counts. Every decision is in the permission record, with the source `hook` where a hook took it.
- **PermissionRequest** and `can_use_tool` are asked at the same time; the first decision counts and the other question
  is withdrawn. Of two that come together a denial counts. Where nobody can be asked, the hook alone decides.
- **Context** for the model goes behind the prompt, or behind all results of that answer of the model; the transcript
  has it as a message with `isMeta`. The host is not told. It is not lost if the turn is interrupted or its prompt
  blocked: then it goes with the next one. Of one context the first {MOST_CONTEXT_CHARS:,} characters count.
- **Stop**: the reason of a block goes to the model and the turn goes on; the next Stop has `stop_hook_active: true`.
  After eight blocks in one turn it ends all the same.
- **continue: false** ends what the first table says: the turn, with `terminal_reason` `hook_stopped` (a prompt is
  dropped, and a call that has not run does not run), or the compaction. Inside a subagent it is the subagent's turn.
  Elsewhere it has no effect, and stderr says so.
- **updatedToolOutput** may be a text, a list of content blocks, or an object like the tool's own; it replaces both what
  the model sees and `tool_use_result`.
- **async: true** says that the hook goes on by itself: the engine does not wait. For a command, what it says in the
  end (context, `systemMessage`) reaches the model with its next message; it is ended after `asyncTimeout` ms.
- **suppressOutput** keeps what the hook wrote out of its `hook_response`.
- `systemMessage` and the reason of a stop are told as `system/informational`.

## Commands

```json
{EXAMPLE}
```

The command is run by bash in the project folder (`$CLAUDE_PROJECT_DIR`), wherever a `cd` of the model has led: a
relative path always names the same script. The session's current folder is `cwd` in the input. It has the input as
JSON on stdin and an environment without our keys and without relative entries in `PATH`. With `args` it is run
without a shell. `onFailure` and `async` may stand beside it. Other types than `command` are not run, which is
reported; a PreToolUse hook that cannot be run denies the calls it is for, unless it has `onFailure: continue`.

| exit code | means |
|---|---|
| 0 | stdout is the answer if it is a JSON object; else it is context, for UserPromptSubmit and SessionStart |
| 2 | it blocks; stderr says why |
| others | it failed |

Output that begins like an object and is not one is a failure, except where it is context; so are an answer of more
than 4 MiB (for PreToolUse, any output of more), one that has a key twice, and for PreToolUse an answer that follows
other output. Commands and all they start end with their time, with an interrupt, and with the engine; one that ignores
SIGTERM is killed two seconds later.

## What the host sees

With `--include-hook-events` every run of a hook is told: `hook_started`, `hook_progress` once a second while a command
writes, `hook_response` with `outcome` success, error (also of a command that blocks by exit code 2) or cancelled.
Runs for SessionStart are always told. `get_hooks_listing` lists the hooks with their sources.
"""


def event_row(event: Event) -> tuple[str, ...]:
    mark = "\\*\\*" if event.tells_effort else "\\*" if event.tells_mode else ""
    fields = ", ".join(f"`{name}`" for name in event.fields)
    effects = ", ".join(f"`{name}`" for name in event.effects)
    matched = f"`{event.matched}`" if event.matched else ""
    block = event.block + ("" if event.failure_blocks or not event.block else " (`onFailure` does not count)")
    block += f"; after a failure {event.failure}" if event.failure else ""
    block += "; so it is after a failure" if event.on_failure == "block" else ""
    return (event.name + mark, event.when, matched, fields, effects, block, event.stops)


def pages() -> dict[str, str]:
    events = table(
        ("event", "fires", "matched", "input", "`hookSpecificOutput`", "`decision: block`", "`continue: false` ends"),
        map(event_row, EVENTS.values()),
    )
    merging = table(("answers", "come to"), ((name, rule) for name, rule in RULES.items()))
    return {"docs/hooks.md": "\n".join([INTRODUCTION, *events, OUTPUT, *merging, REST])}


if __name__ == "__main__":
    raise SystemExit(main(pages()))
