"""Two tools, a model backend, a store and a dialect for Parley, each in one file."""
