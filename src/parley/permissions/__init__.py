"""Permission decisions: may a tool call run, is it denied, or does it need approval?

`policy.SessionPolicy` holds the rules of a session; `decision.decide` is the pure function that it calls. `rule` and
`rules` are about rules; `command`, `proven_command` and `operands` about what a Bash call does; `filesystem`, `git/`
and `shell/` about files, repositories and the shell; `boundary` about limits that no rule lifts.
"""
