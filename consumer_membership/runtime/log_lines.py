"""Writes a consumer's log lines where confluent-kafka users expect librdkafka's: with `logger=`, and with `debug=`.

Each package always writes to its own logger of Python's `logging`. In addition

- with `logger=` the lines of this one consumer go there, from inside its `poll`, `consume` and `close`, as librdkafka's
  lines do, and in the same form: `logger.log(level, "%s [%s] %s", facility, name, text)`;
- without it, `debug=cgrp` (or another context that includes the member) writes them to stderr immediately, in the
  form of librdkafka: `%7|seconds|facility|name| text`.

No module creates a logger when it is imported, only when it writes a line: `logging.config.dictConfig` disables all
existing loggers, unless `disable_existing_loggers` is False, and programs call it after their imports.

The lines at DEBUG require a context in `debug`. A line that Python's `logging` writes to the same place is not
repeated.

Connections, clients and requests share their loggers, and the members of a process may share a thread. A line belongs
to the consumer in whose context it is written (`context_of`): each callback, task and timer of a member runs in it. A
connection that several members share writes its lines for the one that opened it.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context, ContextVar
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

from consumer_membership.config import LogSettings

#: The contexts of librdkafka's `debug` that include a package.
_CONTEXTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "consumer_membership.membership": frozenset({"all", "cgrp", "consumer"}),
        "consumer_membership.session": frozenset({"all", "cgrp", "consumer"}),
        "consumer_membership.network": frozenset({"all", "cgrp", "broker", "protocol"}),
    }
)
#: The numbers of syslog, which `log_level` and the lines on stderr use.
_SYSLOG: Mapping[int, int] = MappingProxyType(
    {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}
)
#: The format that confluent-kafka passes to a logger, with facility, name and text.
_FORM = "%s [%s] %s"
#: Numbers the members of the process, as librdkafka does in its clients' names.
_NUMBERS = count(1)
#: The lines of the present context's consumer, and their prefix, for code that has no reference to a consumer.
_LINES: ContextVar[ConsumerLines | None] = ContextVar("lines", default=None)
_PREFIX: ContextVar[str] = ContextVar("prefix", default="")


class _Line(NamedTuple):
    """A line for the application's logger; `only`: the handlers that get it, if the other handlers have it already."""

    level: int
    arguments: tuple[str, str, str]
    only: set[logging.Handler] | None

    def give(self, logger: logging.Logger) -> None:
        if self.only is None:
            logger.log(self.level, _FORM, *self.arguments)
            return
        record = logger.makeRecord(logger.name, self.level, __file__, 0, _FORM, self.arguments, None)
        if logger.filter(record):
            for handler in self.only:
                handler.handle(record)


class ConsumerLines:
    """The lines of one consumer. `later` calls a function at the application's next poll."""

    def __init__(
        self,
        settings: LogSettings,
        logger: logging.Logger | None,
        later: Callable[[Callable[[], object]], None],
    ) -> None:
        self._settings = settings
        self._logger = logger
        self._later = later
        # Two members with one client.id in one process have different names, as librdkafka's handles have.
        self._name = f"{settings.client_id}#member-{next(_NUMBERS)}"
        # Without a bound, like librdkafka's queue: a member whose application does not poll soon logs nothing more.
        self._waiting: deque[_Line] = deque()

    def accepts(self, package_logger: logging.Logger, level: int) -> bool:
        """Whether a line of this level is written anywhere."""
        is_debugged = not self._settings.contexts.isdisjoint(_CONTEXTS[package_logger.name])
        if self._logger is None:
            return is_debugged
        is_wanted = is_debugged if level == logging.DEBUG else _SYSLOG[level] <= self._settings.level
        return is_wanted and _is_on(self._logger, level)

    def write(self, package_logger: logging.Logger, level: int, facility: str, text: str) -> None:
        """Write this line for the application, unless the package's own logger does."""
        if self._logger is not None:
            there, wanted = _handlers(package_logger, level), _handlers(self._logger, level)
            if not wanted or wanted - there:
                only = wanted - there if wanted & there else None
                self._waiting.append(_Line(level, (facility, self._name, text), only))
                self._later(self.flush)
        elif not any(_is_stderr(handler) for handler in _handlers(package_logger, level)):
            # A process may have closed its stderr, or have none.
            with suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"%{_SYSLOG[level]}|{time.time():.3f}|{facility}|{self._name}| {text}\n")
                sys.stderr.flush()

    def flush(self) -> None:
        """Pass the waiting lines to the application's logger, on the thread that polls."""
        while self._waiting and self._logger is not None:
            try:
                line = self._waiting.popleft()
            except IndexError:  # another thread that polls took the last one
                return
            line.give(self._logger)


def lines_of(
    settings: LogSettings, logger: logging.Logger | None, later: Callable[[Callable[[], object]], None]
) -> ConsumerLines | None:
    """The lines of one consumer; None if it has neither `logger=` nor `debug=`."""
    return ConsumerLines(settings, logger, later) if logger is not None or settings.contexts else None


def consumer_prefix(client_id: str, group_id: str, instance_id: str | None = None) -> str:
    """Return the prefix of a consumer's log lines, in the form of the Java client."""
    instance = f"instanceId={instance_id}, " if instance_id is not None else ""
    return f"[Consumer {instance}clientId={client_id}, groupId={group_id}] "


def context_of(prefix: str, lines: ConsumerLines | None) -> Context:
    """Return a context in which each line begins with this prefix, unless the log has its own, and goes to `lines`."""
    context = Context()
    context.run(_PREFIX.set, prefix)
    context.run(_LINES.set, lines)
    return context


class PackageLog:
    """A package's logger, which also writes a consumer's lines: `lines` if they are given, else those of the context.

    Each line begins with `prefix`, or if that is None, with the prefix of the context (`context_of`).
    """

    __slots__ = ("_lines", "_name", "facility", "prefix")

    def __init__(self, name: str, facility: str, lines: ConsumerLines | None = None, prefix: str | None = None) -> None:
        self._name = name
        self._lines = lines
        self.prefix = prefix
        #: librdkafka's name for the subject of the lines.
        self.facility = facility

    @property
    def _logger(self) -> logging.Logger:
        return logging.getLogger(self._name)

    def is_on(self, level: int) -> bool:
        """Whether lines of this level go anywhere."""
        lines = self._consumer_lines()
        return self._logger.isEnabledFor(level) or (lines is not None and lines.accepts(self._logger, level))

    def debug(self, text: str, *args: object) -> None:
        """Write a detail, such as a heartbeat."""
        self._write(logging.DEBUG, text, args)

    def info(self, text: str, *args: object) -> None:
        """Write an event of the member's normal life: a join, an assignment, a leave."""
        self._write(logging.INFO, text, args)

    def warning(self, text: str, *args: object) -> None:
        """Write a condition that may need an operator's attention."""
        self._write(logging.WARNING, text, args)

    def error(self, text: str, *args: object, exc_info: BaseException | None = None) -> None:
        """Write a failure that ends the membership, or a bug."""
        self._write(logging.ERROR, text, args, exc_info)

    def log(self, level: int, text: str, *args: object) -> None:
        """Write a line of this level."""
        self._write(level, text, args)

    def _write(self, level: int, text: str, args: tuple[object, ...], exc_info: BaseException | None = None) -> None:
        prefix = self.prefix if self.prefix is not None else _PREFIX.get()
        # Without arguments, `logging` formats nothing.
        template = (prefix.replace("%", "%%") if args else prefix) + text
        self._logger.log(level, template, *args, exc_info=exc_info, stacklevel=3)
        lines = self._consumer_lines()
        if lines is not None and lines.accepts(self._logger, level):
            cause = "" if exc_info is None else f": {exc_info!r}"
            thread = "app" if self._lines is not None else "membership"
            line = f"[thrd:{thread}]: {prefix}{text % args if args else text}{cause}"
            lines.write(self._logger, level, self.facility, line)

    def _consumer_lines(self) -> ConsumerLines | None:
        return self._lines if self._lines is not None else _LINES.get()


def _is_on(logger: object, level: int) -> bool:
    # Like confluent-kafka, this accepts any object with a `log` method.
    return not isinstance(logger, logging.Logger) or logger.isEnabledFor(level)


def _handlers(logger: object, level: int) -> set[logging.Handler]:
    """The handlers that write a line of this level for this logger."""
    if not isinstance(logger, logging.Logger) or not logger.isEnabledFor(level):
        return set()
    found: set[logging.Handler] = set()
    at: logging.Logger | None = logger
    while at is not None:
        found.update(at.handlers)
        at = at.parent if at.propagate else None
    if not found and logging.lastResort is not None:
        found.add(logging.lastResort)
    return {one for one in found if one.level <= level and not isinstance(one, logging.NullHandler)}


def _is_stderr(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr
