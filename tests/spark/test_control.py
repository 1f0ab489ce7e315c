"""The connection between a driver and its tasks, over real sockets."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.errors import TransportError
from consumer_membership.spark.control import (
    SILENT_MEMBER,
    ControlLink,
    ControlServer,
    Failure,
    MemberReports,
    Order,
    progress_of,
)
from consumer_membership.spark.plan import ControlAddress
from tests.spark.recorders import progress
from tests.spark.relay import Relay
from tests.support.waiting import PATIENCE_S, wait_until


@pytest.fixture
def server() -> Iterator[ControlServer]:
    """The control server of a driver."""
    with closing(ControlServer("127.0.0.1", "127.0.0.1")) as server:
        yield server


def test_driver_shows_the_latest_report_of_each_member(server: ControlServer) -> None:
    """The driver shows the latest report of each instance."""
    with closing(ControlLink(server.address, 1, 5)) as one, closing(ControlLink(server.address, 0, 6)) as two:
        one.report(progress(1, 5, 10))
        one.report(progress(1, 5, 20))
        two.report(progress(0, 6, 7))
        wait_until(lambda: server.progress() == (progress(0, 6, 7), progress(1, 5, 20)), "reports of both members")
        assert (one.order, two.order) == (None, None)


def test_stop_order_reaches_connected_and_later_tasks(server: ControlServer) -> None:
    """Every task receives the stop order, including tasks that connect after it."""
    with closing(ControlLink(server.address, 0, 1)) as early:
        wait_until(lambda: server.attempts() == {0: 1}, "the attempt")
        server.stop()
        wait_until(lambda: early.order is Order.STOP, "the order to stop")
        with closing(ControlLink(server.address, 1, 2)) as late:
            wait_until(lambda: late.order is Order.STOP, "the order to stop")


def test_later_attempt_replaces_an_earlier_one(server: ControlServer) -> None:
    """The later attempt replaces the earlier one in any order of their connections.

    Reports of the earlier one are ignored.
    """
    with closing(ControlLink(server.address, 0, 2)) as second:
        wait_until(lambda: server.attempts() == {0: 2}, "the later attempt")
        assert not server.has_replacements
        with closing(ControlLink(server.address, 0, 1)) as first, closing(ControlLink(server.address, 0, 3)) as third:
            wait_until(lambda: first.order is Order.SUPERSEDED, "the older attempt's end")
            wait_until(lambda: second.order is Order.SUPERSEDED, "the second attempt's end")
            third.report(progress(0, 3, 30))
            wait_until(lambda: len(server.progress()) == 1, "one report")
            second.report(progress(0, 2, 20))
            second.fail("SinkError", "words")
            wait_until(lambda: len(server.failures()) == 1, "the failure")
            assert (server.progress(), server.has_replacements) == ((progress(0, 3, 30),), True)
            assert third.order is None


def test_report_older_than_its_session_is_shown_as_silent() -> None:
    """A member without a report for a session timeout is shown as silent, without rate.

    The report's age is always shown.
    """
    reports = MemberReports()
    reports.note(progress(0, 1, 10), 100.0)
    (at_its_end,), (beyond,) = reports.shown(145.0), reports.shown(161.0)
    assert (at_its_end.state, at_its_end.silent_s, at_its_end.rate) == ("STABLE", 45.0, 2.0)
    assert (beyond.state, beyond.silent_s, beyond.rate, beyond.records) == (SILENT_MEMBER, 61.0, 0.0, 10)
    assert beyond.waits_for is not None
    assert "for 61 s" in beyond.waits_for
    reports.note(progress(0, 1, 11), 162.0)
    assert [(one.state, one.silent_s) for one in reports.shown(162.0)] == [("STABLE", 0.0)]


def test_partition_reported_by_two_members_is_shown_for_the_later_one() -> None:
    """Each partition and its lag are shown for the latest reporter only."""
    reports = MemberReports()
    reports.note(replace(progress(0, 1, 10), owned=(("t", 0), ("t", 1))), 100.0)
    reports.note(replace(progress(1, 2, 20), owned=(("t", 0), ("t", 2))), 200.0)
    assert [(one.owned, one.lag) for one in reports.shown(200.0)] == [((("t", 1),), 3), ((("t", 0), ("t", 2)), 3)]
    reports.note(replace(progress(1, 2, 21), owned=(("t", 0), ("t", 1), ("t", 2))), 201.0)
    assert [(len(one.owned), one.lag) for one in reports.shown(201.0)] == [(0, 0), (3, 3)]


def test_report_with_an_old_epoch_takes_no_partition() -> None:
    """A report with an older member epoch takes no partition, even if it is the last report that arrived."""
    reports = MemberReports()
    reports.note(replace(progress(1, 2, 20), owned=(("t", 0),), epoch=4), 200.0)
    reports.note(replace(progress(0, 1, 10), owned=(("t", 0),), epoch=3), 200.5)
    assert [one.owned for one in reports.shown(201.0)] == [(), (("t", 0),)]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.sets(st.integers(0, 3)), st.floats(0, 100)),
        min_size=1,
    )
)
def test_every_reported_partition_is_shown_once(course: list[tuple[int, int, set[int], float]]) -> None:
    """For any reports at any times, each partition of the last reports is shown for exactly one member."""
    reports, now = MemberReports(), 0.0
    last: dict[int, set[int]] = {}
    for records, (instance, epoch, numbers, passed) in enumerate(course):
        now += passed
        owned = tuple(("t", number) for number in sorted(numbers))
        reports.note(replace(progress(instance, 1, records), epoch=epoch, owned=owned), now)
        last[instance] = numbers
        shown = [number for one in reports.shown(now) for _, number in one.owned]
        assert sorted(shown) == sorted(set.union(*last.values()))


def test_reports_do_not_age_after_the_run_ended() -> None:
    """After the end of a run, its progress remains the last state."""
    server = ControlServer("127.0.0.1", "127.0.0.1")
    with closing(server), closing(ControlLink(server.address, 0, 1)) as link:
        link.report(progress(0, 1, 10))
        wait_until(lambda: bool(server.progress()), "a report")
    first = server.progress()[0].silent_s
    assert [one.silent_s for one in server.progress()] == [first]


@pytest.mark.parametrize(
    "changed",
    [
        *({"rate": "fast"}, {"epoch": None}, {"session_s": []}, {"waits_for": 1}, {"other": 1}, {"instance": "0"}),
        *({"owned": 1}, {"owned": [["t", "x"]]}, {"owned": [["t", float("inf")]]}, {"owned": [1]}),
    ],
    ids=str,
)
def test_progress_of_other_values_raises_a_documented_error(changed: dict[str, object]) -> None:
    """A report of another version of the package is refused as a whole, before the application reads it."""
    fields = asdict(progress(1, 5, 10))
    assert progress_of(json.loads(json.dumps(fields))) == progress(1, 5, 10)
    with pytest.raises((ValueError, KeyError, TypeError)):
        progress_of({**fields, **changed})


def test_failure_has_its_instance_attempt_and_kind(server: ControlServer) -> None:
    """A failure has instance, attempt and kind, and states whether it came from the latest attempt."""
    with closing(ControlLink(server.address, 0, 7)) as link:
        link.fail("FencedError", "replaced")
        wait_until(lambda: bool(server.failures()), "a failure")
    assert server.failures() == (Failure(instance=0, attempt=7, kind="FencedError", text="replaced", was_latest=True),)


def test_task_stops_when_the_driver_closes_its_connection(server: ControlServer) -> None:
    """The end of the driver's socket counts as a stop order, whether the driver was killed or closed it."""
    with closing(ControlLink(server.address, 0, 1)) as link:
        wait_until(lambda: server.attempts() == {0: 1}, "the attempt")
        server.close()
        wait_until(lambda: link.order is Order.STOP, "the order to stop")
        link.report(progress(0, 1, 1))


def test_broken_connection_is_restored_and_receives_later_orders(server: ControlServer) -> None:
    """A task reconnects as the same attempt, its reports arrive, and it receives later orders."""
    with (
        closing(Relay((server.address.host, server.address.port))) as firewall,
        closing(ControlLink(replace(server.address, port=firewall.port), 0, 1)) as link,
    ):
        wait_until(lambda: firewall.answered == 1, "the first answer")
        firewall.forget()
        wait_until(lambda: firewall.calls == 2, "the second call")

        def is_heard() -> bool:
            link.report(progress(0, 1, 7))
            return server.progress() == (progress(0, 1, 7),)

        wait_until(is_heard, "the report")
        assert (link.order, server.has_replacements) == (None, False)
        server.stop()
        wait_until(lambda: link.order is Order.STOP, "the order to stop")
        assert link.cut_short is None


def test_task_that_reconnects_after_its_replacement_is_superseded(server: ControlServer) -> None:
    """A task that reconnects after a later attempt connected receives the order SUPERSEDED."""
    with (
        closing(Relay((server.address.host, server.address.port))) as firewall,
        closing(ControlLink(replace(server.address, port=firewall.port), 0, 1)) as first,
    ):
        wait_until(lambda: firewall.answered == 1, "the first answer")
        firewall.forget()
        with closing(ControlLink(server.address, 0, 2)):
            wait_until(lambda: first.order is Order.SUPERSEDED, "the older attempt's end")


def test_unreachable_driver_counts_as_a_stop_after_its_timeout(server: ControlServer) -> None:
    """After the timeout, a task stops as if the driver had ended. `cut_short` shows that no driver ordered the stop."""
    with closing(Relay((server.address.host, server.address.port))) as firewall:
        address = replace(server.address, port=firewall.port)
        with closing(ControlLink(address, 0, 1, gone_after_s=0.1)) as link:
            wait_until(lambda: firewall.answered == 1, "the first answer")
            firewall.close()
            wait_until(lambda: link.order is Order.STOP, "the order to stop")
            assert link.cut_short is not None


def test_driver_refuses_a_task_without_the_secret(server: ControlServer) -> None:
    """A task with a wrong secret gets an error that names the address; other protocols' bytes have no effect."""
    with pytest.raises(TransportError, match="no driver of this run responds"):
        ControlLink(replace(server.address, secret="0" * 64), 0, 9)
    for words in (b"\n", b"[]\n", b"nonsense\n", b'{"secret": "%s"}\n' % server.address.secret.encode(), b"x" * 5_000):
        with socket.create_connection((server.address.host, server.address.port)) as plain:
            plain.sendall(words)
            with suppress(ConnectionResetError):
                while plain.recv(4096):
                    pass
    assert (server.progress(), server.attempts()) == ((), {})


def test_driver_refuses_a_recorded_handshake(server: ControlServer) -> None:
    """The driver closes a connection that replays a task's bytes, and registers no attempt."""
    with (
        closing(Relay((server.address.host, server.address.port))) as relay,
        closing(ControlLink(replace(server.address, port=relay.port), 0, 1)) as link,
    ):
        link.report(progress(0, 1, 7))
        wait_until(lambda: server.progress() == (progress(0, 1, 7),), "the report")
    recorded = relay.passed("task")
    assert b'"attempt": 1' in recorded
    with closing(ControlLink(server.address, 0, 1)) as link:
        with socket.create_connection((server.address.host, server.address.port)) as plain:
            plain.sendall(recorded)
            answered = b""
            with suppress(ConnectionResetError):
                while more := plain.recv(4096):
                    answered += more
        # The driver has sent its challenge, but no welcome.
        assert answered.count(b"\n") <= 1
        # The link still works: no recorded attempt has replaced it.
        link.report(progress(0, 1, 8))
        wait_until(lambda: server.progress() == (progress(0, 1, 8),), "the newer report")


def test_task_refuses_a_recorded_driver(server: ControlServer) -> None:
    """A task does not accept a listener that replays the driver's bytes, including its stop order, as the driver."""
    with (
        closing(Relay((server.address.host, server.address.port))) as relay,
        closing(ControlLink(replace(server.address, port=relay.port), 0, 1)) as link,
    ):
        server.stop()
        wait_until(lambda: link.order is Order.STOP, "the order to stop")
    recorded = relay.passed("driver")
    assert recorded.count(b"\n") == 3
    with closing(Impostor(recorded)) as impostor, pytest.raises(TransportError, match="not authentic"):
        ControlLink(replace(server.address, port=impostor.port), 0, 1)


class Impostor:
    """A listener that sends the same bytes to every connection."""

    def __init__(self, response: bytes) -> None:
        self._response = response
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop responding."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _answer(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, suppress(OSError):
                    connection.sendall(self._response)
                    while connection.recv(4096):
                        pass


def test_injected_order_does_not_stop_a_task(server: ControlServer) -> None:
    """A task that receives an injected order drops the connection, reconnects, and accepts the driver's own order."""
    with (
        closing(Relay((server.address.host, server.address.port))) as relay,
        closing(ControlLink(replace(server.address, port=relay.port), 0, 1)) as link,
    ):
        wait_until(lambda: server.attempts() == {0: 1}, "the attempt")
        relay.inject(b'{"order": "stop"}\n' + b"0" * 64 + b' {"order": "stop"}\n')
        wait_until(lambda: relay.calls == 2, "both calls")
        assert (link.order, link.cut_short) == (None, None)
        server.stop()
        wait_until(lambda: link.order is Order.STOP, "the order to stop")
        assert link.cut_short is None


def test_altered_frame_breaks_the_connection_without_effect(server: ControlServer) -> None:
    """A frame that was changed in transit breaks the connection and has no other effect."""

    def altered(number: int, passed: bytes) -> bytes:
        return passed.replace(b'"stop"', b'"superseded"') if number == 1 else passed

    with (
        closing(Relay((server.address.host, server.address.port), altered)) as relay,
        closing(ControlLink(replace(server.address, port=relay.port), 0, 1)) as link,
    ):
        wait_until(lambda: server.attempts() == {0: 1}, "the attempt")
        server.stop()
        wait_until(lambda: link.order is not None, "an order")
        assert (link.order, relay.calls) == (Order.STOP, 2)


def test_task_retries_for_its_whole_timeout_against_an_impostor(server: ControlServer) -> None:
    """A task calls its driver until its timeout, whatever another listener at the address responds."""

    def altered(number: int, passed: bytes) -> bytes:
        return b"nonsense\n" if number in (2, 3) else passed

    with (
        closing(Relay((server.address.host, server.address.port), altered)) as relay,
        closing(ControlLink(replace(server.address, port=relay.port), 0, 1)) as link,
    ):
        wait_until(lambda: server.attempts() == {0: 1}, "the attempt")
        relay.forget()
        wait_until(lambda: relay.calls == 4, "four calls")
        wait_until(lambda: len(server.attempts()) == 1, "one attempt")
        assert link.order is None
        server.stop()
        wait_until(lambda: link.order is Order.STOP, "the order to stop")
        assert link.cut_short is None


def test_task_connects_at_once_beside_a_thousand_silent_connections(server: ControlServer) -> None:
    """A thousand silent connections use a bounded number of threads and files, and a task connects at once."""
    crowd = Program("crowd", str(server.address.port))
    with closing(crowd):
        crowd.expect("connected 1000")
        with closing(ControlLink(server.address, 0, 1)):
            wait_until(lambda: server.attempts() == {0: 1}, "the attempt")
        serving = [thread for thread in threading.enumerate() if thread.name == "consumer-membership-task"]
        # The limit is 128 callers at the same time; a thread that is about to end no longer counts as a caller.
        assert 1 <= len(serving) <= 256
    wait_until(
        lambda: not any(thread.name == "consumer-membership-task" for thread in threading.enumerate()),
        "the end of the link's threads",
    )


def test_silent_connection_is_closed_after_the_handshake_timeout() -> None:
    """The driver closes a silent connection after the handshake timeout, and nothing else ends it."""
    with (
        closing(ControlServer("127.0.0.1", "127.0.0.1", handshake_s=0.1)) as server,
        socket.create_connection((server.address.host, server.address.port)) as silent,
    ):
        silent.settimeout(PATIENCE_S)
        while silent.recv(4096):
            pass


def test_driver_accepts_again_after_it_ran_out_of_files() -> None:
    """The driver logs EMFILE once, and a task that called meanwhile is accepted afterwards."""
    driver = Program("driver")
    with closing(driver):
        port, secret = driver.expect("listens").split()[1:]
        driver.say("exhaust")
        driver.expect("exhausted")
        with ThreadPoolExecutor() as pool:
            address = ControlAddress(host="127.0.0.1", port=int(port), secret=secret)
            calling = pool.submit(ControlLink, address, 0, 1)
            driver.expect("refused EMFILE")
            driver.say("release")
            with closing(calling.result(PATIENCE_S)) as link:
                driver.say("stop")
                wait_until(lambda: link.order is Order.STOP, "the order to stop")
        assert driver.expect("warnings") == "warnings 1"


class Program:
    """`control_programs.py` in its own process, with its own limits."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.control_programs", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, words: str) -> None:
        """Write a line to its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()

    def expect(self, beginning: str) -> str:
        """The next line of its output, which must have this prefix."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line.startswith(beginning), line
        return line

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def test_error_text_is_not_sent_if_spark_encrypts() -> None:
    """If Spark encrypts its own traffic, only an error's kind travels on this plaintext connection.

    Its text may quote records.
    """
    with (
        closing(ControlServer("127.0.0.1", "127.0.0.1", sends_texts=False)) as server,
        closing(Relay((server.address.host, server.address.port))) as relay,
        closing(ControlLink(replace(server.address, port=relay.port), 0, 7)) as link,
    ):
        link.fail("SinkError", "customer 4711")
        wait_until(lambda: bool(server.failures()), "the failure")
        assert [(one.kind, one.text) for one in server.failures()] == [("SinkError", "")]
        assert b"4711" not in relay.passed("task")


def test_unreachable_driver_is_named_with_address_and_remedy() -> None:
    """A task that cannot reach its driver raises an error with the address and the remedy."""
    with closing(ControlServer("127.0.0.1", "127.0.0.1")) as server:
        address = server.address
    with pytest.raises(TransportError, match=rf"127.0.0.1:{address.port}.*spark.driver.host"):
        ControlLink(address, 0, 1)


def test_closed_server_leaves_no_thread() -> None:
    """`close` ends all threads of the driver's server."""
    before = set(threading.enumerate())
    server = ControlServer("127.0.0.1", "127.0.0.1")
    link = ControlLink(server.address, 0, 1)
    wait_until(lambda: server.attempts() == {0: 1}, "the attempt")
    server.close()
    link.close()
    wait_until(lambda: set(threading.enumerate()) <= before, "the end of all threads")
