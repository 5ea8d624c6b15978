"""Programs from the registries that drive an engine or a server of its protocols, run on Parley without a change.

recipes/        a program each: what is installed, and a task with a check of its outcome
helpers/        what recipes share
__main__.py     installs and runs them, and prints a table
"""
