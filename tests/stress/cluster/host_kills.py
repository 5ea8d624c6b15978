"""Hosts killed at random under load: nothing acknowledged is lost or doubled, no command runs twice.

    python -m tests.stress.cluster.host_kills --count 200 --nats-servers 3 --seed 1

Users talk to sessions through gateways: texts, commands that append to a file, questions. A random host gets SIGKILL,
or several at once. Their sessions must answer again from other hosts within the time of a lease and a second, with
every line and every open question; then the hosts start again. At the end, all lines, files and logs are compared. The
exit code is 0 if all holds.
"""

from __future__ import annotations

import asyncio
import sys

from tests.stress.cluster.faults import Run, parse_plan, run_program


async def kill_hosts(run: Run) -> None:
    hosts = run.dice.sample(run.cluster.live_hosts(), run.at_once)
    names = {host.name for host in hosts}
    hit = [talker for name in names for talker in await run.owned_sessions(name)]
    for talker in hit:
        talker.holds_questions = True
    asked = [(talker, talker.open_question()) for talker in hit if talker.open_question()]
    await asyncio.gather(*(host.kill() for host in hosts))
    run.report.count("kills", len(hosts))
    await asyncio.gather(run.probe(hit), run.watch_takeover(hit, names))
    await run.check_questions(asked)
    for talker in hit:
        talker.holds_questions = False
    run.report.count("sessions moved", len(hit))
    await asyncio.gather(*(host.start() for host in hosts))
    await run.cluster.wait_until_balanced()


def main() -> int:
    return run_program("kills of hosts", kill_hosts, parse_plan(__doc__ or "", 200))


if __name__ == "__main__":
    sys.exit(main())
