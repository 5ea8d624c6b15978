"""What the official packages declare, and where Parley stands. `scripts/drift.py` is the program.

`typescript.py` reads `.d.ts` files, `declared.py` lists the declared names by section, `rows.py` reads our rows in
`rows/`, `page.py` makes the tables of `docs/parity.md`. `observed/` has the names that no declaration contains.
"""
