"""`checkpoint`: folders as Spark writes them, and groups on a real broker; queries go on in tests/spark."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer as RawConsumer

from consumer_membership.admin import GroupAdmin
from consumer_membership.cli import main
from consumer_membership.devbroker import Broker
from consumer_membership.types import OffsetAndMetadata
from tests.support.kafka import create_topic, produce, unique

OLD_S = 1_700_000_000


def folder_of(path: Path, *batches: str, done: int, is_old: bool = True) -> Path:
    """A checkpoint with these lines of sources by batch, of which so many are done."""
    (path / "offsets").mkdir(parents=True)
    (path / "commits").mkdir()
    (path / "metadata").write_text('{"id":"1234"}')
    for number, sources in enumerate(batches):
        (path / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{sources}')
        (path / "offsets" / f".{number}.crc").write_text("")
        if number < done:
            (path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    if is_old:
        for file in path.rglob("*"):
            os.utime(file, (OLD_S, OLD_S))
    return path


def test_last_finished_batch_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of each source; a batch that is planned is named, other sources are passed over."""
    ours = '{"version": 1, "group": "billing", "offsets": {"a": {"0": 7}}}'
    folder = folder_of(
        tmp_path / "c", '{"orders":{"0":1}}\n-\n-', f'{{"orders":{{"1":5,"0":3}}}}\n{ours}\n42', "{}\n-\n-", done=2
    )
    assert main(["checkpoint", "show", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "query 1234, batch 1 is done, batch 2 is planned and not done",
        "source 0:",
        "  orders[0]  3",
        "  orders[1]  5",
        "source 1, group billing:",
        "  a[0]  7",
        "source 2: not of Kafka, or nothing read yet",
    ]
    assert main(["checkpoint", "show", f"file://{folder}", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["batch_id"], told["planned_batch_id"], told["query_id"]) == (1, 2, "1234")
    offsets = [{"topic": "a", "partition": 0, "offset": 7}]
    assert told["sources"][1] == {"source": 1, "group": "billing", "offsets": offsets}


def test_folders_that_are_none_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the file that is wrong."""
    newer = folder_of(tmp_path / "newer", '{"a":{"0":1}}', done=1)
    (newer / "offsets" / "0").write_text("v9\n{}\n{}")
    damaged = folder_of(tmp_path / "damaged", '{"a":{"0":1}}', done=1)
    (damaged / "metadata").write_text("{")
    (tmp_path / "empty").mkdir()
    for path, words in {
        str(tmp_path / "empty"): "give the checkpointLocation of a streaming query",
        str(newer): "and not with v1",
        str(damaged): "the file is damaged",
        "s3://bucket/checkpoint": "only folders of this machine",
    }.items():
        assert main(["checkpoint", "show", path]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.integration
def test_offsets_go_to_a_group_and_back(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is written without --execute; the new checkpoint has what the group has."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    folder = folder_of(tmp_path / "c", f'{{"{topic}":{{"0":3,"1":0}}}}', done=1)
    words = ["-b", kafka.bootstrap_servers, "-g", group]
    admin = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    assert main(["checkpoint", "to-group", str(folder), *words]) == 0
    assert f"{topic}[0]  nothing -> 3" in capsys.readouterr().out
    assert main(["checkpoint", "from-group", str(tmp_path / "new"), *words]) == 2
    assert "it has committed nothing" in capsys.readouterr().err
    assert main(["checkpoint", "to-group", str(folder), *words, "--execute"]) == 0
    assert admin.committed(group) == {
        (topic, 0): OffsetAndMetadata(offset=3),
        (topic, 1): OffsetAndMetadata(offset=0),
    }
    assert main(["checkpoint", "from-group", str(tmp_path / "new"), *words]) == 0
    assert not (tmp_path / "new").exists()
    assert main(["checkpoint", "from-group", str(tmp_path / "new"), *words, "--execute"]) == 0
    capsys.readouterr()
    assert main(["checkpoint", "show", str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["source 0:", f"  {topic}[0]  3", f"  {topic}[1]  0"]
    assert main(["checkpoint", "from-group", str(tmp_path / "new"), *words, "--execute"]) == 2
    assert "there is something already" in capsys.readouterr().err


@pytest.mark.integration
def test_groups_and_queries_at_work_are_refused(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A member would go on from where it is; a query would go on writing."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 1)
    words = ["-b", kafka.bootstrap_servers, "-g", group, "--execute"]
    young = folder_of(tmp_path / "young", f'{{"{topic}":{{"0":3}}}}', done=1, is_old=False)
    assert main(["checkpoint", "to-group", str(young), *words]) == 2
    assert "its query runs" in capsys.readouterr().err
    two = folder_of(tmp_path / "two", f'{{"{topic}":{{"0":3}}}}\n{{"{topic}":{{"0":1}}}}', done=1)
    assert main(["checkpoint", "to-group", str(two), *words]) == 2
    assert "there are: 0, 1" in capsys.readouterr().err
    member = RawConsumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    try:
        member.subscribe([topic])
        assert member.poll(60) is not None
        assert main(["checkpoint", "to-group", str(two), *words, "--source", "0"]) == 2
        assert "it has 1 members" in capsys.readouterr().err
        member.commit(asynchronous=False)
        assert main(["checkpoint", "from-group", str(tmp_path / "new"), *words]) == 2
        assert "it has 1 members" in capsys.readouterr().err
        assert not (tmp_path / "new").exists()
        # A query of `kafka-group` that has nothing to do writes nothing; its member is there all the same.
        own = f'{{"version":1,"group":"{group}","offsets":{{"{topic}":{{"0":1}}}}}}'
        folder, other = folder_of(tmp_path / "own", own, done=1), unique("other")
        assert main(["checkpoint", "to-group", str(folder), "-b", kafka.bootstrap_servers, "-g", other]) == 2
        assert f"its query runs: its group '{group}' has 1 members" in capsys.readouterr().err
    finally:
        member.close()
