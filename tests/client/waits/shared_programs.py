"""Programs with semaphores of unknown size, and near misses in which an unknown party has a share.

``holder`` has a share and waits for what ``waiter`` has, which waits for a share: ``python -m
tests.client.waits.orphaned_locks.orphaned_programs``.
"""

from __future__ import annotations

_THREADS = """
        other, both = threading.Lock(), threading.Barrier(2)
        def holds():
            with places:
                both.wait()
                with other:
                    pass
        def wants():
            with other:
                both.wait()
                with places:
                    pass
        threading.Thread(target=holds, name="holder", daemon=True).start()
        waits(wants)
        """
_TASKS = """
        other = asyncio.Lock()
        async def holds():
            async with places:
                await asyncio.sleep(0.1)
                async with other:
                    pass
        async def wants():
            async with other:
                await asyncio.sleep(0.1)
                async with places:
                    pass
        async def main():
            await begin()
            await asyncio.gather(asyncio.create_task(holds(), name="holder"), asyncio.create_task(wants(), name="waiter"))
        loop(main)
        """
_CALL = """
        server = grpc.server(ThreadPoolExecutor(1))
        handler = grpc.unary_unary_rpc_method_handler(lambda request, context: ever.wait())
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"Get": handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        get = agent.channel(grpc.insecure_channel(f"127.0.0.1:{port}")).unary_unary("/s/Get")
        def wants():
            with places:
                pass
        """
SHARED = {
    "one_share_during_a_call": f"""
        places = threading.Semaphore()
        {_CALL}
        def holds():
            with places:
                get(b"")
        threading.Thread(target=holds, name="holder", daemon=True).start()
        while places._value:
            pass
        waits(wants)
        """,
    "one_share": f"""
        places = threading.Semaphore()
        {_THREADS}""",
    "one_share_of_tasks": f"""
        places = asyncio.Semaphore(1)
        async def begin():
            pass
        {_TASKS}""",
    "one_share_of_tasks_by_anyio": f"""
        import anyio
        async def begin():
            global places
            places = anyio.Semaphore(1)
        {_TASKS}""",
    "one_share_made_without_a_loop_by_anyio": f"""
        import anyio
        places = anyio.Semaphore(1)
        async def begin():
            pass
        {_TASKS}""",
    "all_of_the_most_shares_by_anyio": f"""
        import anyio
        async def begin():
            global places
            places = anyio.Semaphore(1, max_value=1)
        async def gives_one_back():
            places.release()
        {_TASKS}""",
    "another_share_is_lost": f"""
        places = threading.BoundedSemaphore(2)
        def fails():
            places.acquire()
            if places:
                return
            places.release()
        ends(fails)
        {_THREADS}""",
    "another_share_of_tasks_is_lost": f"""
        places = asyncio.Semaphore(2)
        async def fails():
            await places.acquire()
            if places:
                return
            places.release()
        async def begin():
            await asyncio.create_task(fails())
        {_TASKS}""",
}
NOT_SHARED = {
    "the_end_of_a_call_releases_it": f"""
        places = threading.Semaphore()
        {_CALL}
        places.acquire()
        call = get.future(b"")
        call.add_done_callback(lambda _: places.release())
        waits(wants)
        """,
    "another_thread_has_one": f"""
        places = threading.Semaphore(2)
        def slow():
            places.acquire()
            ever.wait()
            places.release()
        threading.Thread(target=slow, daemon=True).start()
        while places._value == 2:
            pass
        {_THREADS}""",
    "another_thread_has_one_through_a_function": f"""
        places = threading.Semaphore(2)
        @contextmanager
        def place():
            places.acquire()
            yield
            places.release()
        def slow():
            with place():
                ever.wait()
        threading.Thread(target=slow, daemon=True).start()
        while places._value == 2:
            pass
        {_THREADS}""",
    "another_function_gives_one_back": f"""
        places = threading.Semaphore()
        def grow():
            places.release()
        {_THREADS}""",
    "a_method_gives_one_back": f"""
        places = threading.Semaphore()
        class Limit:
            def __init__(self, places):
                self._places = places
            def grow(self, count):
                self._places.release(count)
        kept.append(Limit(places))
        {_THREADS}""",
    "a_timer_gives_one_back": f"""
        places = threading.Semaphore(2)
        places.acquire()
        timer = threading.Timer(1000, places.release)
        timer.daemon = True
        timer.start()
        {_THREADS}""",
    "a_done_callback_gives_one_back": f"""
        places = asyncio.Semaphore(2)
        async def begin():
            await places.acquire()
            task = asyncio.create_task(asyncio.sleep(1000))
            kept.append(task)
            task.add_done_callback(lambda _: places.release())
        {_TASKS}""",
    "a_generator_has_one": f"""
        places = asyncio.Semaphore(2)
        async def items():
            async with places:
                yield 1
        async def begin():
            kept.append(items())
            await kept[0].__anext__()
        {_TASKS}""",
    "another_function_gives_one_back_by_anyio": f"""
        import anyio
        async def begin():
            global places
            places = anyio.Semaphore(1)
        async def gives_one_back():
            places.release()
        {_TASKS}""",
    "a_method_gives_one_back_by_anyio": f"""
        import anyio
        places = anyio.Semaphore(1)
        class Place:
            places = places
            def give_back(self):
                self.places.release()
        async def begin():
            pass
        {_TASKS}""",
    "another_has_one_by_anyio": f"""
        import anyio
        async def has_one():
            async with places:
                await asyncio.sleep(1_000)
        async def begin():
            global places
            places = anyio.Semaphore(2)
            kept.append(asyncio.create_task(has_one()))
            await asyncio.sleep(0.1)
        {_TASKS}""",
    "an_exit_stack_of_anyios_has_one": f"""
        import anyio
        places = anyio.Semaphore(2)
        async def begin():
            from contextlib import AsyncExitStack
            kept.append(AsyncExitStack())
            await kept[0].enter_async_context(places)
        {_TASKS}""",
    "an_exit_stack_has_one": f"""
        places = asyncio.Semaphore(2)
        async def begin():
            from contextlib import AsyncExitStack
            kept.append(AsyncExitStack())
            await kept[0].enter_async_context(places)
        {_TASKS}""",
    "a_task_that_has_yet_to_run_has_one": """
        places, other = asyncio.Semaphore(2), asyncio.Lock()
        async def takes(go):
            async with places:
                await go.wait()
        async def holds():
            async with places:
                await asyncio.sleep(0.1)
                async with other:
                    pass
        async def wants():
            async with other:
                await asyncio.sleep(0.2)
                async with places:
                    pass
        async def takes_bare(go):
            await places.acquire()
            try:
                await go.wait()
            finally:
                places.release()
        async def stalls(go):
            await go.wait()
            ever.wait()
        async def main():
            go, never = asyncio.Event(), asyncio.Event()
            kept.append(asyncio.create_task(takes(go)))
            kept.append(asyncio.create_task(holds(), name="holder"))
            kept.append(asyncio.create_task(wants(), name="waiter"))
            await asyncio.sleep(0.1)
            kept.append(asyncio.create_task(takes_bare(never)))
            await asyncio.sleep(0.2)
            kept.append(asyncio.create_task(stalls(go)))
            await asyncio.sleep(0.1)
            go.set()
            await asyncio.gather(*kept)
        loop(main)
        """,
}
