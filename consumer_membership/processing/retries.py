"""Retry policies: tenacity's objects, evaluated for one failed attempt at a time, without sleeping.

tenacity's own loop calls the function and sleeps between attempts, which would block a worker for the whole time. Here
the policy only decides: whether the record is retried, and after how many seconds. The scheduler keeps the record until
then, and the worker continues with other records. This module has no clock and does not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import iscoroutine
from math import inf

import tenacity
from tenacity import (
    BaseRetrying,
    Future,
    RetryAction,
    RetryCallState,
    Retrying,
    TryAgain,
    retry_all,
    retry_any,
    retry_if_exception,
    retry_if_exception_cause_type,
    retry_if_exception_type,
    retry_if_not_exception_message,
    retry_if_not_exception_type,
    retry_unless_exception_type,
    stop_after_attempt,
    stop_all,
    stop_any,
    wait_exponential_jitter,
)

from consumer_membership.errors import ArgumentTypeError, ConfigurationError

#: The default policy: 10 attempts within about 80 s, the waits between them doubling from 0.2 s up to 30 s.
_FIRST_WAIT_S, _LONGEST_WAIT_S, _ATTEMPTS = 0.2, 30, 10

#: Rules of tenacity that accept every result, so that they need not be evaluated after successful attempts.
_OF_ERRORS_ONLY = (retry_if_exception, retry_if_exception_cause_type, type(tenacity.retry_never))
#: Their subclasses that also retry after a result.
_OF_RESULTS_ALSO = (retry_unless_exception_type, retry_if_not_exception_message)

_EXAMPLE = "tenacity.Retrying(stop=tenacity.stop_after_attempt(5), wait=tenacity.wait_exponential_jitter(max=30))"


def default_retrying() -> BaseRetrying:
    """Return the default policy: 10 attempts with exponential waits and jitter, for every `Exception` except one class.

    The class is `ConfigurationError`, which each attempt would raise again.
    """
    return Retrying(
        retry=retry_if_exception_type(Exception) & retry_if_not_exception_type(ConfigurationError),
        wait=wait_exponential_jitter(multiplier=_FIRST_WAIT_S, max=_LONGEST_WAIT_S),
        stop=stop_after_attempt(_ATTEMPTS),
    )


class RetryPolicy:
    """A tenacity policy as a function of the attempt, its outcome and the time since the record's first attempt.

    It uses the policy's `retry`, `stop` and `wait`, its hooks `after` and `before_sleep`, and `enabled`. The policy's
    `sleep` is never called. The reported error is always the handler's own, as with `reraise=True`. Each of these
    functions may be a coroutine function, as with `AsyncRetrying`, if it returns without waiting.

    One policy serves all records at the same time: it has no state of its own.
    """

    def __init__(self, retrying: BaseRetrying, function: Callable[..., object] | None = None) -> None:
        """Use this policy; `function` is the handler, whose name the policy's hooks log."""
        _refuse_hooks(retrying)
        self._retrying = retrying
        self._function = function

    @classmethod
    def from_argument(cls, retry: object, function: Callable[..., object] | None = None) -> RetryPolicy:
        """Return the policy of the argument `retry`.

        Args:
            retry: `tenacity.Retrying(...)`, `tenacity.AsyncRetrying(...)`, the decorator that `tenacity.retry(...)`
                returns, a function decorated with it, or None for the default policy.
            function: the handler, whose name the policy's hooks log.

        Raises:
            ConfigurationError: the argument is not a policy, or the policy has hooks that have no meaning here.
        """
        return cls(default_retrying() if retry is None else _retrying_of(retry), function)

    @property
    def never_ends(self) -> bool:
        """Return whether every error is retried without end, so that no record ever fails."""
        return self._retrying.enabled and _never_stops(self._retrying.stop) and _retries_all(self._retrying.retry)

    @property
    def judges_results(self) -> bool:
        """Return whether results may also be retried; if not, `after_result` always accepts and need not be called."""
        return self._retrying.enabled and _judges_results(self._retrying.retry)

    def after(self, attempt: int, error: BaseException, seconds: float, args: tuple[object, ...] = ()) -> float | None:
        """Return the seconds until the next attempt after a failed attempt; None: give up.

        Args:
            attempt: the number of the failed attempt, from 1.
            error: the exception that the handler raised.
            seconds: the time between the start of the record's first attempt and the end of this attempt.
            args: the arguments of the handler, which the policy's functions may read from the `RetryCallState`.

        The policy never raises here: if one of its functions does, the record is given up, and a note of `error` has
        the function's exception.
        """
        try:
            return self._wait_after(self._state(attempt, seconds, args, error=error))
        except Exception as failed:  # noqa: BLE001 - the functions of the policy may raise anything
            error.add_note(f"The retry policy failed, so the record is not retried: {failed!r}")
            return None

    def after_result(self, attempt: int, result: object, seconds: float, args: tuple[object, ...] = ()) -> float | None:
        """Return the seconds until the next attempt if the policy rejects this result; None: the result is accepted.

        Arguments as for `after`.

        Raises:
            tenacity.RetryError: the policy rejects the result and gives up; the class is the policy's own
                `retry_error_cls`.
            Exception: a function of the policy failed.
        """
        if not self.judges_results:
            return None
        state = self._state(attempt, seconds, args, result=result)
        if not _value_of(self._retrying.retry(state)):
            return None
        wait = self._wait_after(state)
        if wait is None:
            raise self._retrying.retry_error_cls(_outcome_of(state))
        return wait

    def _state(
        self,
        attempt: int,
        seconds: float,
        args: tuple[object, ...],
        *,
        error: BaseException | None = None,
        result: object = None,
    ) -> RetryCallState:
        state = RetryCallState(self._retrying, self._function, args, {})
        state.attempt_number = attempt
        state.outcome = Future.construct(attempt, result if error is None else error, error is not None)
        # tenacity only subtracts one from the other.
        state.start_time, state.outcome_timestamp = 0.0, seconds
        return state

    def _wait_after(self, state: RetryCallState) -> float | None:
        """Return the wait before the next attempt, with the steps in the order of tenacity's own loop."""
        retrying = self._retrying
        is_explicit = isinstance(_outcome_of(state).exception(), TryAgain)
        if not retrying.enabled or not (is_explicit or _value_of(retrying.retry(state))):
            return None
        _value_of(retrying.after(state))
        wait = float(_number(_value_of(retrying.wait(state))))
        state.upcoming_sleep = wait
        if _value_of(retrying.stop(state)):
            return None
        state.next_action = RetryAction(wait)
        state.idle_for += wait
        if retrying.before_sleep is not None:
            _value_of(retrying.before_sleep(state))
        return wait


def _outcome_of(state: RetryCallState) -> Future:
    if state.outcome is None:
        raise RuntimeError("a function of the retry policy removed the outcome of the attempt")
    return state.outcome


def _value_of(given: object) -> object:
    """Return the value of a function of the policy, which may be a coroutine function that does not wait."""
    if not iscoroutine(given):
        return given
    return _result_of(given)


def _result_of(coroutine: Coroutine[object, None, object]) -> object:
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    name = getattr(coroutine, "__qualname__", repr(coroutine))
    remedy = "functions of a retry policy may be coroutine functions, but must not wait; decide in the handler instead"
    raise ConfigurationError("retry", name, remedy)


def _number(wait: object) -> float:
    """Return the wait, which must be a finite number of seconds of 0 or more."""
    if not isinstance(wait, int | float) or not 0 <= wait < inf:
        raise ConfigurationError("retry", wait, "the wait of a retry policy must be a number of seconds, 0 or more")
    return wait


# ---- the argument ----


def policy_of_decorated(function: object) -> BaseRetrying | None:
    """Return the policy of a function that is decorated with `tenacity.retry`; None for all other objects."""
    found = getattr(function, "retry", None)
    is_decorated = isinstance(found, BaseRetrying) and not isinstance(function, type)
    return found if is_decorated and hasattr(function, "__wrapped__") else None


def _retrying_of(retry: object) -> BaseRetrying:
    if isinstance(retry, BaseRetrying):
        return retry
    of_function = policy_of_decorated(retry)
    if of_function is not None:
        return of_function
    # A foreign function is not called: only tenacity's decorator.
    if callable(retry) and not isinstance(retry, type) and str(getattr(retry, "__module__", None)) == "tenacity":
        of_probe = policy_of_decorated(retry(lambda: None))
        if of_probe is not None:
            return of_probe
    if isinstance(retry, type) and issubclass(retry, BaseRetrying):
        raise ArgumentTypeError("retry", retry.__name__, f"give an instance of the class, such as {_EXAMPLE}")
    remedy = f"give a policy of tenacity, such as {_EXAMPLE}; stop_after_attempt(1) disables retries"
    raise ArgumentTypeError("retry", retry, remedy)


def _refuse_hooks(retrying: BaseRetrying) -> None:
    """Raise if the policy has functions that would never be called here, or would hide a failure."""
    if retrying.retry_error_callback is not None:
        remedy = (
            "retry_error_callback would replace the error by a result, so that a failed record counts as finished; "
            "set dead_letter to a function that receives failed records"
        )
        raise ConfigurationError("retry", retrying, remedy)
    if retrying.before is not tenacity.before_nothing:
        remedy = "before is not supported; call it at the beginning of the handler, or use before_sleep or after"
        raise ConfigurationError("retry", retrying, remedy)


# ---- questions about the parts of a policy ----


def _never_stops(stop: object) -> bool:
    match stop:
        case stop_any():
            return all(_never_stops(one) for one in stop.stops)
        case stop_all():
            return any(_never_stops(one) for one in stop.stops)
        case _:
            return stop is tenacity.stop_never


def _retries_all(rule: object) -> bool:
    """Return whether a rule surely retries after every exception; rules of the user may not."""
    match rule:
        case retry_any():
            return any(_retries_all(one) for one in rule.retries)
        case retry_all():
            return all(_retries_all(one) for one in rule.retries)
        case retry_if_exception_type():
            types = rule.exception_types if isinstance(rule.exception_types, tuple) else (rule.exception_types,)
            return any(issubclass(Exception, one) for one in types)
        case _:
            return rule is tenacity.retry_always


def _judges_results(rule: object) -> bool:
    if isinstance(rule, retry_any | retry_all):
        return any(_judges_results(one) for one in rule.retries)
    return isinstance(rule, _OF_RESULTS_ALSO) or not isinstance(rule, _OF_ERRORS_ONLY)
