"""Servers of a NATS cluster killed one after the other: the sessions go on.

    python -m tests.stress.cluster.nats_kills --count 50 --seed 1

One of three servers gets SIGKILL and starts again after all sessions have answered. The others elect new leaders of the
streams meanwhile, so requests wait for some seconds; none may fail for good and nothing acknowledged may be lost.
"""

from __future__ import annotations

import sys

from tests.stress.cluster.faults import Run, parse_plan, run_program


async def kill_server(run: Run) -> None:
    number = run.dice.randrange(run.cluster.nats_servers)
    await run.cluster.kill_nats(number)
    await run.probe(run.talkers, writes=True)
    await run.cluster.start_nats(number)


def main() -> int:
    return run_program("kills of NATS servers", kill_server, parse_plan(__doc__ or "", 50, nats_servers=3))


if __name__ == "__main__":
    sys.exit(main())
