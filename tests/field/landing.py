"""The entries that CI runs before each landing: those that the catalogue began with, and a few of each kind of wait.

`make field` runs all of them (`.ci/run --all` does, each night). An entry costs several processes, most of whose time goes
into importing real libraries.
"""

from __future__ import annotations

_FIRST = {
    "grpc_8603", "grpc_7052", "dask_4224", "asyncpg_5", "sqlalchemy_8671", "aiopg_113", "redis_nested", "tiledb_1757",
    "grpc_node_1024", "shenyu_6612", "kuma_5373", "klangk_690", "restate_199", "orleans_6219", "oh_my_pi_6031", "row_lock",
    "two_databases", "psycopg_810",
}  # fmt: skip
_OF_EACH_KIND = {
    "executors": {"bounded_executor", "import_waits", "run_in_run", "cpython_92001", "fastapi_3205"},
    "files": {"filelock_315"},
    "left behind": {"left_lock", "fork_lock", "executor_after_fork"},
    "libraries": {"prometheus_1076", "marin_4098", "crawler_stream", "prefect_7897", "clustershell_145"},
    "locks": {
        "lock_signals", "keyed_locks", "exit_stack", "rich_90", "nested_permits", "generator_lock", "dspace_6",
        "readers_and_writers",
    },
    "loops": {"aiomqtt_174", "first_results", "asgiref_calls_back", "tasks_in_circle", "loop_in_lock", "client_loop"},
    "pools": {"requests_3461", "redis_aio_pool", "queue_pool"},
    "pools of processes": {"pool_after_fork", "opensfm_190", "cpython_115634"},
    "processes": {
        "child_calls_back", "aio_child_calls_back", "shared_locks_crossed", "worker_barrier", "ansible_3991", "fork_with_lock",
    },
    "calls": {"approvals", "bottle_757", "rpc_reader"},
    "calls of tasks": {"aio_both_read", "aio_feeder", "aio_single_flight", "aio_event_flight", "asyncmy_157", "grpc_34530"},
    "signals": {"full_queues", "barrier", "computer_vision_46", "lost_wakeup", "stop_joins", "failed_thread"},
}  # fmt: skip
OF_A_LANDING = _FIRST.union(*_OF_EACH_KIND.values())
