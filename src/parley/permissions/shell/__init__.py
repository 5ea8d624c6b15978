"""Bash commands as the permission engine sees them.

    line = parse_strict("git status && ls")     a `CommandLine` if every word is proven, else `Unclear`
    is_read_only(line)                          may run without a rule
    is_allowed_by(line, ["npm test:*"])         may run by these rules
    find_denied(command, ["git push:*"])        a deny or ask rule matches, in any text
    is_unresolved(command)                      a part is only known when it runs
    may_find_denied(command, ["git push:*"])    a deny or ask rule could match when it runs
    explain_over_budget(command, patterns)      why the search would take too long
    find_targets(line, cwd, fs)                 the files that it reads and writes
    track_files(line, cwd, fs)                  the same, and per simple command
    is_critical_delete(command, ...)            deletes a critical folder
    find_mentions(command, ...)                 files that it names, in anything it runs

Only `parse_strict` leads to an allow; it refuses everything that it cannot prove. `find_denied` errs on the other side:
it rather finds too much.
"""
