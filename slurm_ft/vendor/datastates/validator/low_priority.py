"""A process that takes what the training leaves: the last CPUs, the lowest priority, idle time of the disk."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import time

from .over import Over

MOST_CPUS = 2  # the reader starts a thread for each CPU that it may use, with 8 MiB
NICE = 19
PR_SET_PDEATHSIG = 1  # prctl(2)
SYS_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}  # asm/unistd_64.h, asm-generic/unistd.h
IOPRIO_IDLE = 3 << 13  # linux/ioprio.h: class 3 in the upper bits
POLL_SECONDS = 1.0


def step_back() -> None:
    """Take the lowest priority. What the system refuses costs nothing but that."""
    with contextlib.suppress(OSError):
        os.nice(NICE - os.getpriority(os.PRIO_PROCESS, 0))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-MOST_CPUS:])
    number = SYS_IOPRIO_SET.get(os.uname().machine)
    if number is not None:
        ctypes.CDLL(None).syscall(number, 1, 0, IOPRIO_IDLE)  # 1: this process


def end_with_parent(over: Over) -> None:
    """Set `over` when the process that started us is gone, however it went."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(POLL_SECONDS)
        over.set()

    threading.Thread(target=watch, name="validator-parent", daemon=True).start()
