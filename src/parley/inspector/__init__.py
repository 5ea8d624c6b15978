"""The lines between a client and an engine: pass them on, record them, check them and show them without secrets.

`relay` passes bytes between the two, `observer` looks at a copy of them. `conversation` pairs requests and answers and
formats lines as text, `schema_check` finds fields that the schema does not name, `redaction` removes secrets.
`recorder` writes recordings, whose format is in `recording`. `report` writes a page.
"""
