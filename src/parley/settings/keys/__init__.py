"""The known settings keys.

table.py   one row per key: its type, which layers may set it, and what it does here
kinds.py   the types of values
"""
