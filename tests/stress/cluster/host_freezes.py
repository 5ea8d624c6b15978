"""Hosts frozen past their leases, then thawed: none of their late writes is accepted.

    python -m tests.stress.cluster.host_freezes --count 50 --seed 1

A random host gets SIGSTOP in the middle of turns. Others take its shards when its leases have ended. Then, for each of
its sessions, a write is tried as the frozen host would do it, after the last message that it knows: the log must refuse
it. SIGCONT lets the host itself try. At the end no log may have a batch of an earlier owner after one of a later owner.
"""

from __future__ import annotations

import asyncio
import sys
from uuid import uuid4

from parley.cluster.base import Fenced
from tests.stress.cluster.faults import Run, parse_plan, run_program


async def freeze_host(run: Run) -> None:
    host = run.dice.choice(run.cluster.live_hosts())
    hit = await run.owned_sessions(host.name)
    host.freeze()
    heads = {talker.session_id: await run.cluster.head(talker.session_id) for talker in hit}
    await asyncio.gather(run.probe(hit), run.watch_takeover(hit, {host.name}))
    for session_id, head in heads.items():
        await write_as_zombie(run, session_id, head)
    host.thaw()
    await run.cluster.wait_until_balanced()


async def write_as_zombie(run: Run, session_id: str, head: int) -> None:
    """Append after a message that is not the last one any more."""
    run.report.count("late writes tried")
    key = run.cluster.key(session_id)
    if await run.cluster.head(session_id) == head:
        run.report.count("late writes without a new owner")  # nobody used the session meanwhile
        return
    try:
        await run.cluster.connection.log.append(key, b"{}", expected=head, message_id=str(uuid4()))
    except Fenced:
        run.report.count("late writes refused")
    else:
        run.report.problems.append(f"{session_id}: the log accepted a write after message {head}")


def main() -> int:
    return run_program("freezes of hosts", freeze_host, parse_plan(__doc__ or "", 50))


if __name__ == "__main__":
    sys.exit(main())
