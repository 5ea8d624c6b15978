"""The log of a session, which is its only truth, and what follows from it.

`records` says what can happen and what follows from it (`SessionState`), `SessionLog` keeps both on this machine, and
`SessionRows` (`gateway/database.py`) keeps the rows that lists and the inbox are read from. A cluster writes the same
records to JetStream or PostgreSQL (`parley.cluster.session_log`).
"""
