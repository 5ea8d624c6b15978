"""Whether a tool call may run: rules, hooks, the client's answer, and the record of the decision."""
