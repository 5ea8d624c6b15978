"""Permission decisions: may a tool call run, is it denied, or does it need approval?

`policy.SessionPolicy` holds the rules of a session; `decision.decide` is the pure function that it calls. `rule`,
`rules`, `patterns` and `updates` are about rules, `command` is about what a Bash call does, and `paths/`, `git/` and
`shell/` are about files, repositories and the shell.
"""
