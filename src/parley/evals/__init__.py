"""`parley eval`: run cases against agents, several times and over several configurations, and report how many pass.

    suite.py        the file format: cases, configurations, expectations; which runs a suite consists of
    toml_errors.py  the line of a key that is wrong
    runner.py       runs them at the same time, within a budget
    session.py      one run: a temporary workspace, a session, its recording
    checks.py       whether a run met its expectations; a model that judges by a rubric
    results.py      the file that results are appended to, and how a run resumes
    statistics.py   pass rates with confidence intervals, comparison of two results

See also: `cli/commands/kit/eval.py` for the command, `evals/pytest_items.py` for pytest.
"""
