"""A work-horse that stands ready: forked before there is a job for it, it has rehearsed one in memory of its own.

The first touch of each page that a process shares with its parent costs a copy; a run touches some thousands of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

SETTLE = 0.05
"""Seconds for which a work-horse first waits whether there is a job at once, which it then takes unrehearsed."""

BLOCKED = (signal.SIGTERM, signal.SIGINT)

Ready = Callable[[], object]
Perform = Callable[[str, str, str], object]


@dataclass(slots=True)
class Standby:
    """A process that waits at its end of a pipe for the one job that it will do."""

    pid: int
    pipe: int

    @classmethod
    def fork(cls, ready: Ready, rehearse: Ready, perform: Perform) -> Standby:
        """Fork it.

        :param ready: called in the child first of all, with signals still held back: it sets up how they are taken.
        :param rehearse: called in the child while there is nothing to do.
        :param perform: called in the child with the job's id, its execution's and its queue's name; then it ends.
        """
        reading, writing = os.pipe()
        # A signal now would strike in the child with the worker's own handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
        try:
            pid = os.fork()
            if pid == 0:
                _stand_by(reading, writing, ready, rehearse, perform)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED)
        os.close(reading)
        return cls(pid, writing)

    def give(self, job_id: str, execution_id: str, queue: str) -> bool:
        """Hand the job over; False when the process has died in the meantime."""
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                os.close(self.pipe)
                return False
        try:
            os.write(self.pipe, json.dumps([job_id, execution_id, queue]).encode())
        except BrokenPipeError:
            self.dismiss()
            return False
        os.close(self.pipe)
        return True

    def dismiss(self) -> None:
        """End it: there is nothing more to do."""
        os.close(self.pipe)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _stand_by(reading: int, writing: int, ready: Ready, rehearse: Ready, perform: Perform) -> NoReturn:
    try:
        os.setpgrp()
        ready()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED)
        os.close(writing)
        if not select.select([reading], [], [], SETTLE)[0]:
            rehearse()
        # One message of some hundred bytes: a pipe gives it whole.
        if given := os.read(reading, select.PIPE_BUF):
            os.close(reading)
            perform(*json.loads(given))
    finally:
        os._exit(1)
