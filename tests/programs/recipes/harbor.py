"""Harbor, which runs benchmarks: 20 tasks with scripted solutions, by its own agent and by that of parley-kit."""

# /// script
# requires-python = ">=3.12"
# dependencies = ["harbor==0.24.0"]
# ///
import json
import os
import subprocess
from pathlib import Path

TASKS = 20
TASK = """version = "1.0"
[metadata]
[verifier]
timeout_sec = 60.0
[agent]
timeout_sec = 120.0
[environment]
"""
TEST = """#!/bin/bash
echo 0 > /logs/verifier/reward.txt
[ "$(cat /app/plums.txt)" = "{number} plums" ] && echo 1 > /logs/verifier/reward.txt
"""
# What the agent of parley-kit imports is the one file, so that its package need not be installed here.
AGENT = Path(os.environ["PARLEY_SOURCE"], "parley", "evals", "harbor.py")
AGENTS = {"claude-code": ["--agent", "claude-code"], "parley": ["--agent", "parley_harbor:Parley"]}

for number in range(TASKS):
    task = Path("tasks", f"plums-{number}")
    (task / "environment").mkdir(parents=True)
    (task / "tests").mkdir()
    (task / "task.toml").write_text(TASK)
    (task / "environment" / "Dockerfile").write_text("FROM scratch\nWORKDIR /app\n")
    content = {"file_path": "/app/plums.txt", "content": f"{number} plums\n"}
    (task / "instruction.md").write_text(
        f'call Write {json.dumps(content)}\ncall Bash {{"command": "cat /app/plums.txt"}}\nsay done\n'
    )
    (task / "tests" / "test.sh").write_text(TEST.format(number=number))
Path("parley_harbor.py").write_text(AGENT.read_text())

for name, words in AGENTS.items():
    done = subprocess.run(
        [
            *("harbor", "run", "-p", "tasks", "--env", "local_environment:LocalEnvironment"),
            *(*words, "-m", "anthropic/claude-sonnet-4-5", "-n", "4", "--jobs-dir", "jobs", "--job-name", name, "-y"),
        ],
        env={**os.environ, "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{os.getcwd()}", "HARBOR_TELEMETRY": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    trials = [json.loads(path.read_text()) for path in Path("jobs", name).glob("*/result.json")]
    rewards = [(trial.get("verifier_result") or {}).get("rewards", {}).get("reward") for trial in trials]
    assert rewards == [1.0] * TASKS, (done.stdout[-2000:], done.stderr[-2000:], rewards)
    traces = [json.loads(path.read_text()) for path in Path("jobs", name).glob("*/agent/trajectory.json")]
    assert len(traces) == TASKS, len(traces)
    for trace in traces:
        tools = [call["function_name"] for step in trace["steps"] for call in step.get("tool_calls") or []]
        assert tools == ["Write", "Bash"], tools
        assert trace["final_metrics"]["total_prompt_tokens"] > 0, trace["final_metrics"]
    assert {trial["agent_info"]["name"] for trial in trials} == {name}, trials[0]["agent_info"]
