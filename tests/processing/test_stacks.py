"""The stack of a running handler begins with the handler's own frame and ends with the line that runs."""

from __future__ import annotations

import asyncio
import threading

from consumer_membership.processing.context import HandlerContext
from consumer_membership.processing.handlers import RecordHandler, checked_handler
from consumer_membership.processing.stacks import stack_of_coroutine, stack_of_thread
from tests.processing.records import records, scheduler_of, taken
from tests.support.waiting import PATIENCE_S


def functions_of(stack: str) -> list[str]:
    """Return the names of the functions in a stack, the outermost first."""
    return [line.rpartition(" in ")[2] for line in stack.splitlines() if line.startswith("  File ")]


class Held:
    """An object to wait for, in a function whose name is in stacks."""

    def __init__(self) -> None:
        self.is_waiting = threading.Event()
        self.is_over = threading.Event()

    def wait_here(self) -> None:
        """Block the thread until the test ends the wait."""
        self.is_waiting.set()
        self.is_over.wait(PATIENCE_S)


def called(handler: RecordHandler) -> object:
    """Call a handler with a record."""
    scheduler = scheduler_of()
    scheduler.admit(records("a"), 0.0)
    task = taken(scheduler)
    return handler.run(task.messages[0], HandlerContext(task, None))


def test_stack_of_a_thread_begins_with_the_handler() -> None:
    """Frames of the interpreter, of this package and of the worker below the handler are omitted."""
    held = Held()

    def handle(_: object) -> None:
        held.wait_here()

    handler = checked_handler(handle, max_batch=1, processes=False)
    thread = threading.Thread(target=called, args=[handler])
    thread.start()
    assert held.is_waiting.wait(PATIENCE_S)
    assert thread.ident is not None
    assert functions_of(stack_of_thread(thread.ident))[:2] == ["handle", "wait_here"]
    held.is_over.set()
    thread.join()
    assert stack_of_thread(thread.ident) == ""


def test_stack_of_a_waiting_coroutine_ends_with_the_innermost_one() -> None:
    """The handler awaits another function and waits there; `Task.get_stack` does not show that function."""

    async def inner(reached: asyncio.Event) -> None:
        reached.set()
        await asyncio.Event().wait()

    async def handle(reached: asyncio.Event) -> None:
        await inner(reached)

    async def run() -> list[str]:
        reached = asyncio.Event()
        task = asyncio.create_task(handle(reached))
        await reached.wait()
        found = stack_of_coroutine(task.get_coro(), threading.get_ident())
        task.cancel()
        return functions_of(found)

    assert asyncio.run(run()) == ["handle", "inner", "wait"]


def test_stack_of_a_coroutine_that_blocks_its_loop_is_the_one_of_the_thread() -> None:
    """A handler that calls a blocking function stops all other handlers, so its stack must name that function."""
    held = Held()
    running: list[asyncio.Task[None]] = []

    async def handle() -> None:
        held.wait_here()

    async def run() -> None:
        running.append(asyncio.create_task(handle()))
        await running[0]

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert held.is_waiting.wait(PATIENCE_S)
    assert thread.ident is not None
    found = functions_of(stack_of_coroutine(running[0].get_coro(), thread.ident))
    held.is_over.set()
    thread.join()
    assert found[found.index("handle") :][:2] == ["handle", "wait_here"]
