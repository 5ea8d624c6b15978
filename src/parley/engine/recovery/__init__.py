"""What an interrupted engine left behind: calls without a result, open approvals, orphaned tasks."""
