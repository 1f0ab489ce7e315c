"""A tenacity policy decides, without sleeping, whether and when a record is retried."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
import tenacity
import tenacity.asyncio
from tenacity import (
    AsyncRetrying,
    BaseRetrying,
    RetryCallState,
    Retrying,
    TryAgain,
    retry_if_exception,
    retry_if_exception_type,
    retry_if_not_exception_type,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
    stop_before_delay,
    wait_fixed,
)

from consumer_membership.errors import ArgumentTypeError, ConfigurationError
from consumer_membership.processing.retries import RetryPolicy

BROKEN = ValueError("broken")


def refuse_sleep(_: float) -> None:
    """Fail, because policies must be evaluated without sleeping."""
    raise AssertionError("a policy must not sleep")


def policy_of(**parts: object) -> RetryPolicy:
    """Return a tenacity policy with these parts."""
    return RetryPolicy(Retrying(sleep=refuse_sleep, **parts))  # type: ignore[arg-type]  # each part has its own type


def attempts_of(policy: RetryPolicy, error: BaseException = BROKEN, *, each_s: float = 0.0) -> list[float]:
    """Return the waits of a record that fails until the policy stops; each attempt takes `each_s` seconds."""
    waits: list[float] = []
    now = each_s
    while len(waits) < 1000 and (wait := policy.after(len(waits) + 1, error, now)) is not None:
        waits.append(wait)
        now += wait + each_s
    return waits


def test_default_policy_makes_ten_attempts_with_growing_waits_up_to_thirty_seconds() -> None:
    """The waits double from 0.2 s, with up to 1 s of jitter, and end after the tenth attempt."""
    waits = attempts_of(RetryPolicy.from_argument(None))
    least = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert len(waits) == len(least)
    assert all(low <= wait <= min(low + 1, 30) for low, wait in zip(least, waits, strict=True))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), ConfigurationError("a", "b", "c")])
def test_default_policy_does_not_retry_permanent_errors(error: BaseException) -> None:
    """Exits and configuration errors are not retried; all other exceptions are."""
    assert RetryPolicy.from_argument(None).after(1, error, 0.0) is None


def test_policy_retries_by_exception_class_and_predicate() -> None:
    """A policy's `retry` rejects permanent errors by class or by any predicate."""
    by_class = policy_of(retry=retry_if_exception_type(OSError))
    assert (by_class.after(1, TimeoutError(), 0), by_class.after(1, BROKEN, 0)) == (0.0, None)
    by_predicate = policy_of(retry=retry_if_exception(lambda error: "later" in str(error)))
    assert (by_predicate.after(1, ValueError("later"), 0), by_predicate.after(1, BROKEN, 0)) == (0.0, None)


def test_stop_after_delay_counts_from_the_first_attempt_of_the_record() -> None:
    """The time includes waits and attempts of the record; `stop_before_delay` also includes the next wait."""
    assert attempts_of(policy_of(wait=wait_fixed(10), stop=stop_after_delay(35)), each_s=1) == [10.0] * 4
    assert attempts_of(policy_of(wait=wait_fixed(10), stop=stop_before_delay(35)), each_s=1) == [10.0] * 3


def test_wait_chain_reads_the_attempt() -> None:
    """Each wait depends on the number of the attempt that failed."""
    wait = tenacity.wait_chain(wait_fixed(1), wait_fixed(timedelta(seconds=5)), wait_fixed(60))
    assert attempts_of(policy_of(wait=wait, stop=stop_after_attempt(5))) == [1.0, 5.0, 60.0, 60.0]


def test_try_again_is_retried_whatever_the_predicate_returns() -> None:
    """The exception TryAgain requests another attempt until the policy stops."""
    policy = policy_of(retry=tenacity.retry_never, stop=stop_after_attempt(3))
    assert attempts_of(policy, TryAgain()) == [0.0, 0.0]


def test_disabled_policy_never_retries() -> None:
    """With `enabled=False` there is one attempt."""
    policy = policy_of(enabled=False)
    assert (policy.after(1, BROKEN, 0), policy.never_ends, policy.judges_results) == (None, False, False)


# ---- results ----


def test_result_is_retried_until_the_policy_accepts_it() -> None:
    """`retry_if_result` rejects results of successful attempts."""
    policy = policy_of(retry=retry_if_result(lambda result: result == "busy"), wait=wait_fixed(3))
    assert policy.judges_results
    assert (policy.after_result(1, "busy", 0), policy.after_result(2, "done", 3)) == (3.0, None)
    assert policy.after(1, BROKEN, 0) is None


def test_rejected_result_raises_retry_error_at_the_end() -> None:
    """If the policy stops after a rejected result, the error is of the policy's own class and has the result."""

    class StillBusyError(tenacity.RetryError):
        pass

    policy = policy_of(retry=retry_if_result(bool), stop=stop_after_attempt(2), retry_error_cls=StillBusyError)
    assert policy.after_result(1, "busy", 0) == 0.0
    with pytest.raises(StillBusyError) as raised:
        policy.after_result(2, "busy", 0)
    assert raised.value.last_attempt.result() == "busy"


@pytest.mark.parametrize(
    ("rule", "judges"),
    [
        (retry_if_exception_type(), False),
        (retry_if_exception_type(OSError) | retry_if_exception(bool), False),
        (retry_if_exception_type(OSError) | retry_if_result(bool), True),
        (tenacity.retry_unless_exception_type(OSError), True),
        (tenacity.retry_if_not_exception_message("a"), True),
        (tenacity.retry_never, False),
        (tenacity.retry_always, True),
        (lambda _: True, True),
    ],
)
def test_policy_reports_whether_it_judges_results(rule: Callable[[RetryCallState], bool], judges: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Rules about exceptions only are not evaluated after a successful attempt."""
    policy = policy_of(retry=rule)
    assert policy.judges_results == judges
    if not judges:
        assert policy.after_result(1, "anything", 0) is None


# ---- policies that never end ----

ENDLESS = tenacity.stop_never


@pytest.mark.parametrize(
    ("retrying", "never_ends"),
    [
        (Retrying(), True),
        (Retrying(stop=stop_after_attempt(2)), False),
        (Retrying(stop=tenacity.stop_any(ENDLESS, stop_after_attempt(2))), False),
        (Retrying(stop=tenacity.stop_all(ENDLESS, stop_after_attempt(2))), True),
        (Retrying(retry=retry_if_exception_type(OSError)), False),
        (Retrying(retry=retry_if_exception_type((OSError, BaseException))), True),
        (Retrying(retry=tenacity.retry_always), True),
        (Retrying(retry=retry_if_exception_type() & retry_if_not_exception_type(OSError)), False),
        (Retrying(retry=retry_if_exception_type() | retry_if_exception_type(OSError)), True),
        (Retrying(retry=lambda _: True), False),
    ],
)
def test_policy_reports_whether_it_never_ends(retrying: BaseRetrying, never_ends: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A policy never ends if nothing stops it and it retries after every error; a program's rule may reject some."""
    assert RetryPolicy(retrying).never_ends == never_ends


# ---- values of the option `retry` ------------------------------------------------------------------------------------


def decorator() -> object:
    """Return tenacity's decorator."""
    return tenacity.retry(stop=stop_after_attempt(2), wait=wait_fixed(7))


def decorated() -> object:
    """Return a function with a policy."""

    @tenacity.retry(stop=stop_after_attempt(2), wait=wait_fixed(7))
    def call() -> None:
        raise AssertionError("a policy must not call the function that it was made for")

    return call


def decorated_coroutine() -> object:
    """Return a coroutine function with a policy."""

    @tenacity.retry(stop=stop_after_attempt(2), wait=wait_fixed(7))
    async def call() -> None:
        raise AssertionError("a policy must not call the function that it was made for")

    return call


@pytest.mark.parametrize(
    "made",
    [
        lambda: Retrying(stop=stop_after_attempt(2), wait=wait_fixed(7)),
        lambda: AsyncRetrying(stop=stop_after_attempt(2), wait=wait_fixed(7)),
        decorator,
        decorated,
        decorated_coroutine,
    ],
)
def test_argument_may_be_a_policy_a_decorator_or_a_decorated_function(made: Callable[[], object]) -> None:
    """Programs may keep a tenacity policy in any of these forms; all have the same effect."""
    assert attempts_of(RetryPolicy.from_argument(made())) == [7.0]


@pytest.mark.parametrize(
    "wrong",
    [5, "3", False, Retrying, stop_after_attempt(3), wait_fixed(1), print, partial(print), lambda handler: handler],
)
def test_argument_that_is_not_a_policy_raises_error_with_an_example(wrong: object) -> None:
    """The error shows a policy; a function that is not tenacity's is never called."""
    with pytest.raises(ArgumentTypeError, match=r"^retry=.*tenacity\.Retrying\(stop=") as raised:
        RetryPolicy.from_argument(wrong)
    assert raised.value.key == "retry"


@pytest.mark.parametrize(
    "hook", [{"retry_error_callback": lambda _: None}, {"before": lambda _: None}], ids=["callback", "before"]
)
def test_hooks_that_would_not_be_called_raise_errors(hook: dict[str, Callable[[RetryCallState], None]]) -> None:
    """`retry_error_callback` would hide failed records, and `before` is not called: both are errors."""
    with pytest.raises(ConfigurationError, match=f"{next(iter(hook))} (would|is not supported)"):
        RetryPolicy(Retrying(**hook))  # type: ignore[arg-type]  # each hook has its own type


def test_policy_logs_with_its_hooks(caplog: pytest.LogCaptureFixture) -> None:
    """`before_sleep` and `after` receive the handler's name, the error, the attempt and the next wait."""

    def handle() -> None: ...

    log = logging.getLogger("application")
    retrying = Retrying(
        wait=wait_fixed(2),
        stop=stop_after_attempt(3),
        before_sleep=tenacity.before_sleep_log(log, logging.WARNING),
        after=tenacity.after_log(log, logging.INFO),
    )
    with caplog.at_level(logging.INFO, "application"):
        RetryPolicy(retrying, handle).after(1, BROKEN, 0.5)
        RetryPolicy(retrying, handle).after(3, BROKEN, 0.5)
    first, second, third = (record.getMessage() for record in caplog.records)
    assert "handle" in first
    assert "1st time" in first
    assert second.endswith("handle in 2 seconds as it raised ValueError: broken.")
    assert "3rd time" in third


def test_functions_of_the_policy_read_the_arguments_of_the_handler() -> None:
    """The functions of a policy receive the record in their state, as in tenacity's own loop."""
    policy = policy_of(wait=lambda state: state.args[0])
    assert policy.after(1, BROKEN, 0.0, (12.5,)) == 12.5


# ---- asynchronous policies ----


async def is_temporary(error: BaseException) -> bool:
    """Decide without waiting."""
    return isinstance(error, OSError)


async def is_temporary_after_a_wait(_: BaseException) -> bool:
    """Decide after a wait."""
    await asyncio.sleep(0)
    return True


def test_coroutine_functions_of_a_policy_are_evaluated_without_an_event_loop() -> None:
    """Predicates of `tenacity.asyncio` work in every processor, also within a running event loop."""
    policy = RetryPolicy(AsyncRetrying(retry=tenacity.asyncio.retry_if_exception(is_temporary), wait=wait_fixed(1)))

    async def inside() -> tuple[float | None, float | None]:
        return policy.after(1, OSError(), 0), policy.after(1, BROKEN, 0)

    assert (policy.after(1, OSError(), 0), policy.after(1, BROKEN, 0)) == (1.0, None)
    assert asyncio.run(inside()) == (1.0, None)


def test_coroutine_function_that_waits_gives_the_record_up_with_a_note() -> None:
    """A decision must not wait, so the record fails, and a note of its error has the explanation."""
    error = OSError()
    policy = RetryPolicy(AsyncRetrying(retry=tenacity.asyncio.retry_if_exception(is_temporary_after_a_wait)))
    assert policy.after(1, error, 0) is None
    assert "must not wait" in error.__notes__[0]


# ---- policies that fail ----


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), None, "1"])
def test_policy_that_fails_gives_the_record_up_with_a_note(wait: object) -> None:
    """If a wait is invalid or a function raises, the attempts end, and the handler's error is raised with a note."""
    error = ValueError("broken")
    assert policy_of(wait=lambda _: wait).after(1, error, 0) is None
    assert "The retry policy failed" in error.__notes__[0]


def test_predicate_that_raises_gives_the_record_up_with_a_note() -> None:
    """The note has the exception of the predicate."""
    error = ValueError("broken")
    policy = policy_of(retry=retry_if_exception(lambda failed: failed.missing))  # type: ignore[attr-defined]
    assert policy.after(1, error, 0) is None
    assert "AttributeError" in error.__notes__[0]
