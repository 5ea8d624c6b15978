"""The long-term memory.

MemoryWorker, SessionMemory, Recall   the interfaces; the engine imports only these (base.py)
LocalMemoryWorker                     consolidates after turns (worker.py)
Summarizer                            compacts a conversation into summaries (summarizer.py, summary_levels.py)
LocalSessionMemory                    the stored memory of a session (session_memory.py)
KnowledgeTree, Summaries              tables of the database (knowledge_tree.py, summaries.py, database.py)
Curator                               the model that updates the tree (curator.py)
MemorySearch, MemoryRead              tools (tools.py)
"""
