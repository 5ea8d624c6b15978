"""The process that stands for the engine: it has secrets in its environment, its memory and an open file."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


key, queue = int(sys.argv[1]), sys.argv[2]
secret, scratch = ctypes.create_string_buffer(os.environ["MEMORY_SECRET"].encode()), ctypes.create_string_buffer(4096)
file = os.memfd_create("secret")
os.write(file, os.environ["FILE_SECRET"].encode())
for number in (signal.SIGTERM, signal.SIGINT, *range(signal.SIGRTMIN, signal.SIGRTMIN + 20)):
    signal.signal(number, lambda found, _: say(f"signal {found}"))
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(key, 4096, 0o1600)
if segment >= 0:
    ctypes.memmove(
        libc.shmat(segment, None, 0), os.environ["SEGMENT_SECRET"].encode(), len(os.environ["SEGMENT_SECRET"])
    )
messages = libc.msgget(key, 0o1600)
has_queue = libc.syscall(240, queue.encode(), os.O_CREAT | os.O_RDWR, 0o600, None) >= 0
say(
    json.dumps(
        {
            "victim": os.getpid(),
            "victim_secret": [ctypes.addressof(secret), len(secret)],
            "victim_scratch": [ctypes.addressof(scratch), 4],
            "victim_descriptor": file,
            "has_queue": has_queue,
            "segment": segment,
            "messages": messages,
        }
    )
)
while sys.stdin.readline():
    pass
if segment >= 0:
    libc.shmctl(segment, 0, None)
libc.syscall(241, queue.encode())
libc.msgctl(messages, 0, None)
say("end")
