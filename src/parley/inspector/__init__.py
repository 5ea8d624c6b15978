"""What a client and an engine say to each other: passed on, paired, checked against the schema, shown without secrets.

`relay` passes bytes between the two, `observer` looks at a copy of them. `timeline` pairs requests and answers,
`schema_check` finds fields that the schema does not name, `redaction` removes secrets. `text` and `report` show it.
"""
