"""Processes: waits for the end of a child, and for locks that processes share."""

from __future__ import annotations

import sys

from tests.field.entry import Entry

_WATCHES = int(sys.version_info < (3, 12))
"""Threads of asyncio that wait for the child, too."""

ENTRIES = (
    Entry(
        program="child_calls_back",
        source="widely known",
        library="subprocess, gRPC",
        what="A handler runs a child process and waits for it; the child calls the same server, which has no free worker.",
        near={
            "patience": "`communicate` has a timeout",
            "deadline": "the child's call has a deadline",
            "worker": "the server has one more worker",
            "killed": "another thread kills the child later",
            "signalled": "another thread sends a signal to the child's process id later",
            "stranger": "the child has no agent, and ends later",
        },
    ),
    Entry(
        program="aio_child_calls_back",
        source="widely known",
        library="asyncio.subprocess, grpcio (aio)",
        what="A coroutine runs a child process while it holds a lock; the child calls a method that needs the lock.",
        near={
            "patience": "the coroutine waits in `asyncio.wait_for`",
            "deadline": "the child's call has a deadline",
            "killed": "another task kills the child later",
            "free": "the method that the child calls does not need the lock, but is slow",
        },
        elsewhere={"site": 1 + _WATCHES},
    ),
    Entry(
        program="shared_lock",
        source="widely known",
        library="multiprocessing",
        what="A process locks a lock of multiprocessing and joins its worker, which needs the lock before it ends.",
        near={
            "limit": "the worker's wait for the lock has a timeout",
            "patience": "`join` has a timeout",
            "slow": "the worker does not need the lock yet",
            "other_thread": "another thread releases the lock later",
            "terminated": "another thread terminates the worker later",
            "all_terminated": "another thread terminates all active workers later",
        },
    ),
    Entry(
        program="shared_locks_crossed",
        source="widely known",
        library="multiprocessing",
        what="Two workers acquire two locks of multiprocessing in opposite orders.",
        near={
            "limit": "the waits for the second lock have a timeout",
            "slow": "one of the workers does not need its second lock yet",
        },
    ),
    Entry(
        program="queue_join",
        source="widely known",
        library="multiprocessing",
        what="A process joins its worker before it has read the worker's queue, which has no room for the results.",
        near={
            "patience": "`join` has a timeout",
            "slow": "the worker has yet to write its result, for which there is room",
            "other_thread": "another thread reads the queue later",
            "terminated": "another thread terminates the worker later",
            "all_terminated": "another thread terminates all active workers later",
            "third": "a third process has the reading end of the queue's pipe, and reads later",
        },
        elsewhere={"worker": 2},
    ),
    Entry(
        program="pipe_asks",
        source="widely known",
        library="multiprocessing",
        what="A process waits for its worker's result, the worker for its next task: each reads a pipe that the other writes.",
        near={
            "patience": "the worker waits in `poll`, which has a timeout",
            "slow": "the worker does not read, but sends its result later",
            "other_thread": "another thread sends the next task later",
            "terminated": "another thread terminates the worker later",
            "all_terminated": "another thread terminates all active workers later",
            "third": "a third process has the writing end of the worker's pipe, and writes later",
        },
    ),
    Entry(
        program="lambda_multiprocessing_17",
        source="mdavis-xyz/lambda_multiprocessing 17",
        library="multiprocessing",
        what="A process and its worker send each other more than the pipe has room for, and would read only afterwards.",
        near={
            "small": "the message is small, and the worker sends its own later",
            "other_thread": "another thread reads from the pipe later",
            "terminated": "another thread terminates the worker later",
            "all_terminated": "another thread terminates all active workers later",
            "third": "a third process has the worker's end of the pipe, and might read",
        },
    ),
    Entry(
        program="pipe_calls_back",
        source="widely known",
        library="multiprocessing, gRPC",
        what="A handler waits for the message of a worker process; the worker calls the same server, which has no free thread.",
        near={
            "patience": "the handler waits in `poll`, which has a timeout",
            "deadline": "the worker's call has a deadline",
            "worker": "the server has one more thread",
            "another": "another thread of the worker sends the message later",
            "kept": "the server has kept the pipe's writing end open, and may use it",
            "killed": "another thread kills the worker later",
            "all_killed": "another thread kills all active workers later",
            "signalled": "another thread sends a signal to the worker's process id later",
            "stranger": "the worker has no agent, and ends later",
        },
    ),
    Entry(
        program="tasks_and_results",
        source="widely known",
        library="multiprocessing",
        what="A process puts all tasks into a queue before it reads a result; the queues of tasks and of results are full.",
        near={
            "patience": "`put` has a timeout",
            "large": "the queue of results has room for all, and the worker is slow",
            "other_thread": "another thread reads the results later",
            "terminated": "another thread terminates the worker later",
            "third": "a third process has the reading end of the queue of tasks, and reads later",
        },
    ),
    Entry(
        program="turbinia_945",
        source="google/turbinia 945",
        library="subprocess",
        what="A command's output goes to a pipe, which is read once the command has ended; the command waits for room there.",
        near={
            "patience": "`wait` has a timeout",
            "read": "another thread reads the output later",
            "killed": "another thread kills the command later",
            "signalled": "another thread sends a signal to the command's process id later",
            "slow": "the command does not write yet",
            "alarm": "the command has an alarm",
            "thread": "another thread of the command goes on",
        },
    ),
    Entry(
        program="remoto_62",
        source="alfredodeza/remoto 62",
        library="subprocess",
        what="A command's output is read to its end, and its errors afterwards; the command waits for room for its errors.",
        near={
            "read": "another thread reads the errors later",
            "killed": "another thread kills the command later",
            "signalled": "another thread sends a signal to the command's process id later",
            "slow": "the command does not write yet",
            "alarm": "the command has an alarm",
            "thread": "another thread of the command goes on",
        },
    ),
    Entry(
        program="ansible_3991",
        source="ansible/ansible 3991",
        library="subprocess",
        what="All of a command's input is written before its output is read; neither pipe has room.",
        near={
            "read": "another thread reads the output later",
            "descriptor": "another thread reads the output later, by its descriptor",
            "slow": "the command does not write yet",
        },
    ),
    Entry(
        program="sandboxfusion_53",
        source="bytedance/SandboxFusion 53",
        library="asyncio.subprocess, grpcio (aio)",
        what="A coroutine waits for the end of a program before it reads what it prints; the program waits for room there.",
        near={
            "patience": "the coroutine waits in `asyncio.wait_for`",
            "read": "another task reads the output later",
            "killed": "a timer kills the program later",
            "slow": "the program does not print yet",
            "alarm": "the program has an alarm",
        },
    ),
    Entry(
        program="fork_with_lock",
        source="widely known",
        library="multiprocessing",
        what="A worker is forked while another thread holds a lock, which nobody releases in the worker; the parent joins it.",
        near={
            "patience": "`join` has a timeout",
            "timeout": "the worker acquires the lock with a timeout",
            "thread": "another thread of the worker releases the lock later",
            "alarm": "the worker has an alarm, whose handler releases the lock",
            "killed": "another thread kills the worker later",
            "slow": "the worker does not need the lock yet",
        },
    ),
    Entry(
        program="joins_before_set",
        source="widely known",
        library="multiprocessing",
        what="A process joins its worker before it sets the event for which the worker waits.",
        near={
            "limit": "`wait` has a timeout",
            "patience": "`join` has a timeout",
            "slow": "the worker is slow, and does not wait yet",
            "other_thread": "another thread of the process sets the event later",
            "signalled": "a signal handler of the process sets the event",
            "stranger": "a process without an agent has the event, too",
            "idle": "the process does not set the event afterwards: a signal ends both",
        },
    ),
    Entry(
        program="worker_barrier",
        source="widely known",
        library="multiprocessing",
        what="A process joins its workers, which wait for it at a barrier that it would reach only afterwards.",
        near={
            "limit": "the barrier has a timeout",
            "slow": "one of the workers is slow, and does not wait yet",
            "other_thread": "another thread of the process reaches the barrier later",
        },
    ),
    Entry(
        program="never_done",
        source="widely known",
        library="multiprocessing",
        what="A process waits until its queue is done; its worker never reports a task as done, and waits for the next.",
        near={
            "slow": "the worker is slow, and has not reported the task yet",
            "late": "another thread of the worker reports the task later",
        },
    ),
)
