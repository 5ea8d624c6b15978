"""A black-box suite of the protocol: does an engine, or a client, do what the protocol says?

    registry.py      behaviours (`behaviours.tsv`), scenarios (what is done to an engine) and checks (what is expected)
    conditions.py    what checks expect of the log of a scenario: scenario_log.py
    driver.py        starts an engine with a scripted model, talks to it and writes the log
    scenarios/       the scenarios and their checks, by theme
    runner.py        runs scenarios on an engine or a gateway (gateway_bridge.py) and judges them
    report.py        the outcome as text, JSON or HTML, and several side by side
    client.py        the same for clients, with the fake engine of the testing kit

See also: `cli/commands/conformance/` has the commands.
"""
