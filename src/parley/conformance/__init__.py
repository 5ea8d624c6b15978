"""A black-box suite of the protocol: does an engine, or a client, do what the protocol says?

    behaviours.tsv   the behaviours that the protocol asks for
    scenarios/       what is done to an engine or a client, and what is expected of it; scenario.py has the format
    registry.py      reads both
    driver.py        starts an engine with a scripted model, plays a scenario and writes the log: scenario_log.py
    conditions.py    what checks expect of the log; judges.py and invariants.py have the special cases
    runner.py        runs scenarios on an engine or a gateway (gateway_bridge.py) and judges them
    report.py        the outcome as text, JSON or HTML, and several side by side
    client.py        the same for clients, with the fake engine of the testing kit

See also: `cli/commands/conformance/` has the commands.
"""
