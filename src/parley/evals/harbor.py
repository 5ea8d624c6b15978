"""Parley as an agent of Harbor, which runs Terminal-Bench, SWE-bench and many other benchmarks.

    harbor run -d terminal-bench@2.0 --agent parley.evals.harbor:Parley -m anthropic/claude-sonnet-4-5

Parley has the command line and the transcripts that Harbor's own `claude-code` agent expects. Only the installation is
another one: `claude` in the environment is Parley.
"""

from __future__ import annotations

from harbor.agents.installed.claude_code import ClaudeCode
from harbor.environments.base import BaseEnvironment

PATH = 'export PATH="$HOME/.local/bin:$PATH"'


class Parley(ClaudeCode):  # type: ignore[misc]  # harbor is installed only where it runs
    """Installs `parley-agent`, unless `claude` in the environment is Parley already."""

    @staticmethod
    def name() -> str:
        return "parley"

    async def install(self, environment: BaseEnvironment) -> None:
        found = await environment.exec(f"{PATH}; claude --version")
        if "Parley" in (found.stdout or ""):
            return
        await self.ensure_system_dependencies(environment, ("curl", "bash"))
        package = f"parley-agent=={self._version}" if self._version else "parley-agent"
        # uv brings a Python of its own: that of a benchmark's image is often too old, or missing.
        await self.exec_as_agent(
            environment,
            command=(
                f"set -eu; {PATH}; command -v uv >/dev/null || curl -LsSf https://astral.sh/uv/install.sh | sh; "
                f"uv tool install --python 3.12 {package}; "
                'ln -sf "$(command -v parley)" "$HOME/.local/bin/claude"; claude --version'
            ),
        )
