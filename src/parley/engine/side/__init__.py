"""Model calls outside the conversation.

SideQuery         questions of tools and of the memory (query.py)
call_with_retry   a call with the retries of a turn, for summaries (retry.py)
Suggester         suggestions for the next prompt (suggestion.py)
"""
