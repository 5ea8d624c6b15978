"""The log of a session, which is its only truth, and what follows from it.

`records` says what can happen, `SessionState` is what follows from it, `SessionLog` keeps both on this machine, and
`SessionRows` keeps the rows that lists and the inbox are read from. A cluster writes the same records to JetStream or
PostgreSQL (`parley.cluster.session_log`).
"""
