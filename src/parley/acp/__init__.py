"""The Agent Client Protocol (ACP): sessions in editors.

    AcpAgent          the methods that an editor calls (agent.py)
    SessionHost       where its sessions are (host.py): in this process, or on a gateway

`parley acp` runs an agent on stdin and stdout; `parley serve` runs one per WebSocket on `/acp`.
"""
