"""The mailbox of a Spark Connect run: how a client and its tasks exchange orders and progress through a broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.control import Order
from consumer_membership.spark.mailbox import ClientMailbox, TaskMailbox
from consumer_membership.spark.plan import MemberPlan, planned
from tests.spark.recorders import progress
from tests.support.acls import AUTHORIZER, forbid
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, unique
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


def a_plan(broker: Broker) -> MemberPlan:
    """A plan with two members and two partitions."""
    topic = create_topic(broker.bootstrap_servers, unique("mailbox"), 2)
    return planned({"bootstrap.servers": broker.bootstrap_servers}, [topic], unique("group"), 2)


@pytest.fixture
def mailbox(kafka: Broker) -> Iterator[ClientMailbox]:
    """The client's side of the mailbox."""
    plan = a_plan(kafka)
    with closing(ClientMailbox(plan, [(plan.topics[0], 0), (plan.topics[0], 1)])) as mailbox:
        yield mailbox


def test_mailbox_shows_the_latest_progress_of_each_task(mailbox: ClientMailbox) -> None:
    """The client reads the latest progress report of each instance."""
    with closing(TaskMailbox(mailbox.plan, 1)) as one, closing(TaskMailbox(mailbox.plan, 0)) as two:
        one.report(progress(1, 5, 10))
        wait_until(lambda: mailbox.progress() == (progress(1, 5, 10),), "the report")
        one.report(progress(1, 5, 20))
        two.report(progress(0, 6, 7))
        wait_until(lambda: mailbox.progress() == (progress(0, 6, 7), progress(1, 5, 20)), "reports of both members")
        assert (one.order, two.order) == (None, None)


def test_stop_order_reaches_running_and_later_tasks(mailbox: ClientMailbox) -> None:
    """Every task receives the stop order, including tasks that start after it."""
    with closing(TaskMailbox(mailbox.plan, 0)) as early:
        mailbox.stop()
        wait_until(lambda: early.order is Order.STOP, "the order to stop")
        assert early.cut_short is None
    with closing(TaskMailbox(mailbox.plan, 1)) as late:
        wait_until(lambda: late.order is Order.STOP, "the order to stop")


def test_tasks_stop_after_their_client_is_gone(mailbox: ClientMailbox) -> None:
    """Tasks stop when the client's counter no longer increases."""
    with closing(TaskMailbox(mailbox.plan, 0, gone_after_s=2.0)) as task:
        mailbox.close()
        wait_until(lambda: task.order is Order.STOP, "the order to stop")


def test_mailbox_ignores_orders_and_progress_of_an_earlier_run(mailbox: ClientMailbox) -> None:
    """A run ignores the order and the progress of an earlier run, because all runs of a pipeline share one mailbox."""
    earlier = replace(mailbox.plan, run_number=mailbox.plan.run_number - 1)
    with closing(TaskMailbox(earlier, 0, gone_after_s=3.0)) as old, closing(TaskMailbox(mailbox.plan, 1)) as new:
        old.report(progress(0, 1, 99))
        new.report(progress(1, 5, 10))
        wait_until(lambda: old.order is Order.STOP, "the order to stop")
        wait_until(lambda: mailbox.progress() == (progress(1, 5, 10),), "the newer report")
        assert new.order is None


def test_report_above_4096_bytes_is_sent_without_its_partitions(mailbox: ClientMailbox) -> None:
    """A report that exceeds the broker's limit of 4,096 bytes of offset metadata is sent without its partitions."""
    many = replace(progress(0, 1, 5), owned=tuple(("t", number) for number in range(2_000)))
    with closing(TaskMailbox(mailbox.plan, 0)) as link:
        link.report(many)
        wait_until(lambda: mailbox.progress() == (replace(many, owned=()),), "the report's beginning")


def test_client_without_rights_to_the_helper_groups_gets_an_error_before_the_job(broker_pool: RunBrokers) -> None:
    """A client that may not commit to the mailbox's group gets an error that names the group before any task starts."""
    broker = broker_pool.shared(properties=AUTHORIZER)
    plan = a_plan(broker)
    forbid(broker.bootstrap_servers, ResourceType.GROUP, f"{plan.pipeline}-control", AclOperation.READ)
    with pytest.raises(ConfigurationError, match=f"{plan.pipeline}-control and {plan.pipeline}-progress; grant"):
        ClientMailbox(plan, [(plan.topics[0], 0)])
