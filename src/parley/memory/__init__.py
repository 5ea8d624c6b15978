"""The long-term memory.

MemoryWorker, Recall                  the interfaces; the engine imports only these (base.py)
LocalMemoryWorker                     consolidates after turns (worker.py)
Summarizer                            compacts a conversation into summaries (summarizer.py)
SessionMemory                         the stored memory of a session (session_memory.py)
KnowledgeTree, MemoryDatabase         the entries, and the file that they are in (knowledge_tree.py)
Curator                               the model that updates the tree (curator.py)
MemorySearch, MemoryRead              tools (tools.py)
"""
