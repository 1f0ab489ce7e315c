"""The interface between a session and its observer, and the functions that all observers share.

A session with a handle and one without (`session`, `member_session`) know their observer only by these protocols. The
client creates the observer, gives it to the session, and then calls its `observe`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from consumer_membership.config import ConsumerConfig
from consumer_membership.runtime.log_lines import PackageLog

if TYPE_CHECKING:  # it imports more than a consumer needs
    from consumer_membership.runtime.application.dump_signal import Recorded
    from consumer_membership.runtime.probes.thread import ProbeThread, Watched
    from consumer_membership.wire.otlp import Point


class MemberSessionObserver(Protocol):
    """Receives the events of one session that fetches nothing; no method waits."""

    def measure(self) -> tuple[Point, ...]:
        """Return the metrics for brokers that collect them (KIP-714); on the membership thread."""

    def on_closing(self) -> None:
        """The session left its group and refuses every call from now on; may be called twice after an interrupt."""

    def on_closed(self) -> None:
        """The session released everything; may be called twice after an interrupt."""

    def on_dropped(self) -> None:
        """The session was deleted without a close; may be called by the garbage collector, in any thread."""


class SessionObserver(MemberSessionObserver, Protocol):
    """Receives the events of one consumer's session; no method waits."""

    def on_subscribed(self) -> None:
        """The application subscribed."""

    def on_statistics(self, text: str) -> None:
        """Receive librdkafka's statistics; on the thread that polls, without the handle lock."""


def attend_probes(config: ConsumerConfig, watched: Watched, log: PackageLog) -> ProbeThread | None:
    """Report this consumer or member to probes if its settings want it; return the process's probe thread.

    Raises:
        ConfigurationError: the probes' address or file cannot be used.
    """
    settings = config.probe_settings()
    if not settings.are_wanted:
        return None
    from consumer_membership.runtime.probes.pages import PATHS  # few consumers have probes
    from consumer_membership.runtime.probes.thread import THIS_PROCESS

    address = THIS_PROCESS.probes.attend(settings, watched)
    if address is not None:
        log.info("Serving probes at http://%s: %s", address, PATHS)
    return THIS_PROCESS.probes


def dump_on_signal(config: ConsumerConfig, recorded: Recorded, log: PackageLog) -> None:
    """Have the consumer or member write a recording at each SIGUSR2 if its settings want it."""
    if not config.recorder_settings().on_signal:
        return
    from consumer_membership.runtime.application.dump_signal import have_dumped  # few consumers use it

    if not have_dumped(recorded):
        log.warning(
            "recorder.signal.enable=true is ignored: a signal handler can only be set in the main thread of a "
            "system with SIGUSR2; create the consumer in the main thread, or call consumer.dump()"
        )
