"""The recorder of golden frames on a real broker, with the installed librdkafka."""

from __future__ import annotations

from functools import partial

import pytest

from consumer_membership.wire.versions import Api
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.wire.golden_frames import ANSWER, LIBRDKAFKA, REQUEST, may_end_with, message_of, written_again
from tests.wire.record_golden import EVERYTHING, STEPS, Offers, Recorder, act_librdkafka

pytestmark = [pytest.mark.slow, pytest.mark.integration]


@pytest.mark.parametrize(("strategy", "offers"), [("range", STEPS[0]), ("consumer", EVERYTHING)])
def test_recorder_records_frames_that_round_trip(broker_pool: RunBrokers, strategy: str, offers: Offers) -> None:
    """Both directions are recorded, in no newer version than the client was offered."""
    broker = broker_pool.shared(properties=SHORT_SESSIONS)
    topics = {unique("golden"): 3, unique("golden"): 2}
    for topic, partitions in topics.items():
        create_topic(broker.bootstrap_servers, topic, partitions)
        produce(broker.bootstrap_servers, topic, 20)
    recorder = Recorder(broker)
    act = partial(act_librdkafka, group=unique("golden"), strategy=strategy, topics=topics)
    recorder.record(LIBRDKAFKA, strategy, offers, act)
    frames = recorder.recording.frames
    for frame in frames:
        _, end = message_of(frame)
        assert frame.data[end:] in may_end_with(frame)
        assert written_again(frame) == frame.data[:end]
    asked = {(one.api, one.version) for one in frames if one.direction == REQUEST}
    answered = {(one.api, one.version) for one in frames if one.direction == ANSWER}
    # librdkafka sends ApiVersions in its newest version, and the response may have version 0.
    assert {(api, version) for api, version in asked ^ answered if api is not Api.API_VERSIONS} == set()
    assert all(version <= offers.get(api, version) for api, version in answered)
    joins = Api.CONSUMER_GROUP_HEARTBEAT if strategy == "consumer" else Api.JOIN_GROUP
    assert {joins, Api.OFFSET_COMMIT, Api.OFFSET_FETCH, Api.METADATA} <= {api for api, _ in answered}
