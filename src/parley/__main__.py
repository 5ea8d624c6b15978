"""`python -m parley`."""

from parley.cli.main import run

run()
