"""`fork_server.py MODULE SOCKET` runs drivers in forks of a process that has imported the module of a client.

The import takes longer than most tasks.

A request on the socket (a descriptor) is one byte with three descriptors: the task (`{"argv", "environment", "cwd"}`),
and the stdout and stderr of the driver. The reply is its exit code. At the end of the input the server ends.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import socket
import sys

importlib.import_module(sys.argv[1])
with socket.socket(fileno=int(sys.argv[2])) as line:
    while True:
        descriptors = socket.recv_fds(line, 1, 3)[1]
        if not descriptors:
            sys.exit()
        driver = os.fork()
        if driver == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        line.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1])}".encode())

for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *descriptors[1:])):
    os.dup2(descriptor, number)
    os.close(descriptor)
with os.fdopen(descriptors[0], encoding="utf-8") as given:
    task = json.load(given)
os.environ.clear()
os.environ.update(task["environment"])
os.chdir(task["cwd"])
sys.argv = task["argv"]
runpy.run_path(sys.argv[0], run_name="__main__")
