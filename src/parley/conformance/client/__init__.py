"""Conformance of clients: a fake engine plays scenarios, and what the client sent is judged.

fake_engine.py   the executable that a client starts; it plays a scenario and writes down what it receives
scenarios.py     the scenarios and their checks
runner.py        runs a client's command once for each scenario
"""
