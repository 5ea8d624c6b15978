"""List, read, rename and fork past sessions without starting an engine.

Prints:
    listed: say Remember me.
    user: say Remember me.
    assistant: Remember me.
    its title is now: The first one
    the fork has all messages: True
"""

import tempfile

from parley import (
    Options,
    fork_session,
    get_session_info,
    get_session_messages,
    list_sessions,
    rename_session,
    run_sync,
)


def show(folder: str) -> None:
    [found] = list_sessions(folder)
    print("listed:", found.summary)
    messages = get_session_messages(found.session_id, folder)
    for message in messages:
        content = message.message["content"]
        print(f"{message.type}:", content if isinstance(content, str) else content[0]["text"])
    rename_session(found.session_id, "The first one", folder)
    named = get_session_info(found.session_id, folder)
    print("its title is now:", named and named.summary)
    fork = fork_session(found.session_id, folder)
    print("the fork has all messages:", len(get_session_messages(fork.session_id, folder)) == len(messages))


with tempfile.TemporaryDirectory() as folder:
    run_sync("say Remember me.", Options(model="offline", cwd=folder))
    show(folder)
