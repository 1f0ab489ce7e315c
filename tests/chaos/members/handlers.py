"""A member with a `Processor`: handlers in threads, in the order of each key, and commits of finished records."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException, Message

from consumer_membership.processing import HandlerContext, Processor
from tests.chaos import history as h
from tests.chaos.members.account import Account, offset_of, partition_of
from tests.chaos.members.statements import ns

_HANDLES_S = 0.002


def run_processor(account: Account) -> int:
    """Run the member until it is closed, or fails permanently."""

    def handle(message: Message, context: HandlerContext) -> None:
        begun_ns = h.now_ns()
        until_ns = None
        if account.plan.has_leases:
            try:
                until_ns = ns(context.lease.until)
            except KafkaException:
                until_ns = None
        account.received(message, begun_ns, until_ns)
        time.sleep(account.take_sleep_s() + _HANDLES_S)
        account.writer.write(h.Finished(partition=partition_of(message), offset=offset_of(message)))

    processor = Processor(account.config(), [account.topic], handle, concurrency=4)
    account.on_close(processor.stop)
    try:
        # The account has the handler of SIGTERM.
        processor.run(handle_signals=False)
    except KeyboardInterrupt:
        return 130
    except KafkaException as error:
        account.writer.write(h.Raised(error=repr(error), is_fatal=True))
        return 1
    account.writer.write(h.Closed())
    return 0
