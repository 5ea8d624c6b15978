"""A black-box suite of the protocol: does an engine, or a client, do what the protocol says?

    behaviours.py    the behaviours of the protocol, by id: behaviours.tsv
    driver.py        starts an engine, talks to it and writes down what both sides said: scenario_log.py
    registry.py      scenarios (what is done to an engine) and checks (what is expected of the log)
    scenarios/       the scenarios and their checks, by theme
    runner.py        runs scenarios on an engine and judges them
    report.py        the outcome as text, JSON or HTML, and several side by side
    gateway.py       the same for the sessions of a gateway: gateway_bridge.py
    client/          the same for clients: a fake engine that plays scenarios

See also: `cli/commands/conformance/` has the commands.
"""
