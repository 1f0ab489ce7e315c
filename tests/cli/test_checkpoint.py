"""`checkpoint` with folders in Spark's format, and with groups on a real broker; tests/spark tests real queries."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from time import time

import pytest
from confluent_kafka import Consumer as RawConsumer

from consumer_membership.admin import GroupAdmin
from consumer_membership.cli import main
from consumer_membership.devbroker import Broker
from consumer_membership.spark.checkpoint import group_batches, rewrite
from consumer_membership.spark.folders import LocalFolder
from consumer_membership.spark.source.offsets import OffsetsByPartition, read_offsets
from consumer_membership.types import OffsetAndMetadata
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PATIENCE_S

OLD_S = 1_700_000_000


def folder_of(path: Path, *batches: str, done: int, is_old: bool = True) -> Path:
    """Create a checkpoint with these source lines for each batch, of which `done` batches are committed."""
    (path / "offsets").mkdir(parents=True)
    (path / "commits").mkdir()
    (path / "metadata").write_text('{"id":"1234"}')
    for number, sources in enumerate(batches):
        (path / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{sources}')
        (path / "offsets" / f".{number}.crc").write_text("")
        if number < done:
            (path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    # The time is in the future, because on a busy machine a file that is written now could soon be old.
    written_at = OLD_S if is_old else time() + PATIENCE_S
    for file in path.rglob("*"):
        os.utime(file, (written_at, written_at))
    return path


def test_checkpoint_show_prints_last_finished_batch_of_each_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output has the last completed batch and the planned batch; for other sources it has no offsets."""
    ours = '{"version": 1, "group": "billing", "offsets": {"a": {"0": 7}}}'
    folder = folder_of(
        tmp_path / "c", '{"orders":{"0":1}}\n-\n-', f'{{"orders":{{"1":5,"0":3}}}}\n{ours}\n42', "{}\n-\n-", done=2
    )
    assert main(["checkpoint", "show", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "query 1234: last completed batch 1, batch 2 planned but not completed",
        "source 0:",
        "  orders[0]  3",
        "  orders[1]  5",
        "source 1, group billing:",
        "  a[0]  7",
        "source 2: no Kafka offsets (another kind of source, or no batch yet)",
    ]
    assert main(["checkpoint", "show", f"file://{folder}", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["batch_id"], document["planned_batch_id"], document["query_id"]) == (1, 2, "1234")
    offsets = [{"topic": "a", "partition": 0, "offset": 7}]
    assert document["sources"][1] == {"source": 1, "group": "billing", "offsets": offsets}


def test_checkpoint_show_of_invalid_folder_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a folder that cannot be read, the command prints the reason and exits with 2."""
    newer = folder_of(tmp_path / "newer", '{"a":{"0":1}}', done=1)
    (newer / "offsets" / "0").write_text("v9\n{}\n{}")
    damaged = folder_of(tmp_path / "damaged", '{"a":{"0":1}}', done=1)
    (damaged / "metadata").write_text("{")
    (tmp_path / "empty").mkdir()
    for path, words in {
        str(tmp_path / "empty"): "give the checkpointLocation of a streaming query",
        str(newer): "not with v1",
        str(damaged): "the file is damaged",
        "s3://bucket/checkpoint": "use consumer_membership.spark.CheckpointFolder",
    }.items():
        assert main(["checkpoint", "show", path]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metadata", b'{"id": "\xff"}'),
        ("metadata", b"[" * 100_000),
        ("offsets/0", b'v1\n{}\n{"a":{"0":1}}\xff'),
        ("offsets/0", b"v1\n" + b"[" * 100_000 + b"\n{}"),
        ("offsets/0", b'v1\n{}\n{"version":1,"group":["g"],"offsets":{"a":{"0":1}}}'),
    ],
    ids=["metadata not UTF-8", "metadata nested deeply", "offsets not UTF-8", "batch nested deeply", "group no text"],
)
def test_checkpoint_show_of_damaged_file_exits_2(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a file that is not text, or that has values of other types, the error is one line that names the file."""
    folder = folder_of(tmp_path / "c", '{"a":{"0":1}}', done=1)
    (folder / name).write_bytes(content)
    assert main(["checkpoint", "show", str(folder)]) == 2
    error = capsys.readouterr().err
    assert (name in error, error.count("\n")) == (True, 1)


@pytest.mark.parametrize("line", ['{"a":{"0":1e999}}', "[" * 100_000], ids=["infinity", "nested deeply"])
def test_checkpoint_show_takes_other_json_as_another_source(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A source line without Kafka offsets belongs to another kind of source, and other files are skipped."""
    folder = folder_of(tmp_path / "c", line, done=1)
    (folder / "offsets" / "²").write_text("")
    assert main(["checkpoint", "show", str(folder)]) == 0
    assert "source 0: no Kafka offsets" in capsys.readouterr().out


@pytest.mark.integration
def test_checkpoint_to_group_and_from_group_copy_offsets(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --execute, nothing is written; the new checkpoint has the group's offsets."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    folder = folder_of(tmp_path / "c", f'{{"{topic}":{{"0":3,"1":0}}}}', done=1)
    words = ["-b", kafka.bootstrap_servers, "-g", group]
    admin = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    assert main(["checkpoint", "to-group", str(folder), *words]) == 0
    assert f"{topic}[0]  none -> 3" in capsys.readouterr().out
    assert main(["checkpoint", "from-group", str(tmp_path / "new"), *words]) == 2
    assert "the group has no committed offsets" in capsys.readouterr().err
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
    assert "the path already exists and is not an empty folder" in capsys.readouterr().err


@pytest.mark.integration
def test_checkpoint_to_group_rejects_active_group_or_query(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both commands reject a group with members and a query that runs, because they would overwrite the offsets."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 1)
    words = ["-b", kafka.bootstrap_servers, "-g", group, "--execute"]
    young = folder_of(tmp_path / "young", f'{{"{topic}":{{"0":3}}}}', done=1, is_old=False)
    assert main(["checkpoint", "to-group", str(young), *words]) == 2
    refusal = r"does not show whether its query runs; stop the query, and try again in \d+ s"
    assert re.search(refusal, capsys.readouterr().err)
    two = folder_of(tmp_path / "two", f'{{"{topic}":{{"0":3}}}}\n{{"{topic}":{{"0":1}}}}', done=1)
    assert main(["checkpoint", "to-group", str(two), *words]) == 2
    assert "give the number of one Kafka source of the query: 0, 1" in capsys.readouterr().err
    member = RawConsumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            # An automatic commit would leave nothing to commit below, which is an error.
            "enable.auto.commit": False,
        }
    )
    try:
        member.subscribe([topic])
        assert member.poll(PATIENCE_S) is not None
        assert main(["checkpoint", "to-group", str(two), *words, "--source", "0"]) == 2
        assert "the group has 1 member, such as" in capsys.readouterr().err
        member.commit(asynchronous=False)
        assert main(["checkpoint", "from-group", str(tmp_path / "new"), *words]) == 2
        assert "the group has 1 member, such as" in capsys.readouterr().err
        assert not (tmp_path / "new").exists()
        # A `kafka-group` query without new records writes no files, but its member is in the group.
        own = f'{{"version":1,"group":"{group}","offsets":{{"{topic}":{{"0":1}}}}}}'
        folder, other = folder_of(tmp_path / "own", own, done=1), unique("other")
        assert main(["checkpoint", "to-group", str(folder), "-b", kafka.bootstrap_servers, "-g", other]) == 2
        assert f"its query runs: group '{group}' has 1 member, such as" in capsys.readouterr().err
        assert main(["checkpoint", "to-kafka", str(folder), "-b", kafka.bootstrap_servers, "--execute"]) == 2
        assert f"its query runs: group '{group}' has 1 member, such as" in capsys.readouterr().err
        assert (folder / "offsets" / "0").read_text().endswith(own)
    finally:
        member.close()


@pytest.mark.integration
def test_checkpoint_to_group_accepts_a_group_query_as_soon_as_its_member_has_left(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The members of its group show whether a `kafka-group` query runs; the age of its files does not matter."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    own = f'{{"version":1,"group":"{group}","offsets":{{"{topic}":{{"0":0}}}}}}'
    young = folder_of(tmp_path / "young", own, done=1, is_old=False)
    words = ["-b", kafka.bootstrap_servers, "-g", unique("other"), "--execute"]
    assert main(["checkpoint", "to-group", str(young), *words]) == 0
    assert "committed 1 offset of batch 0 to group " in capsys.readouterr().out


@pytest.mark.integration
def test_checkpoint_to_kafka_rewrites_log_once(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log is rewritten only with --execute, and the old log is kept; a second call has nothing to do."""
    group = unique("group")
    ours = f'{{"version":1,"group":"{group}","topicIds":{{"a":"x"}},"offsets":{{"a":{{"0":NUMBER}}}}}}'
    batches = [f"{ours.replace('NUMBER', str(number))}\n42" for number in (3, 5)]
    folder = folder_of(tmp_path / "c", '{"a":{"0":1}}\n42', *batches, done=2)
    before = [(folder / "offsets" / str(number)).read_text() for number in range(3)]
    words = ["checkpoint", "to-kafka", str(folder), "-b", kafka.bootstrap_servers]
    assert main(words) == 0
    assert "use --execute to rewrite the offsets of batches 1 to 2" in capsys.readouterr().out
    assert [(folder / "offsets" / str(number)).read_text() for number in range(3)] == before
    assert main([*words, "--source", "0"]) == 2
    assert "omit --source: to-kafka rewrites all sources" in capsys.readouterr().err
    assert main([*words, "--execute"]) == 0
    assert "rewrote the offsets of batches 1 to 2" in capsys.readouterr().out
    head = 'v1\n{"batchWatermarkMs":0}\n'
    after = [f'{head}{{"a":{{"0":{number}}}}}\n42' for number in (1, 3, 5)]
    assert [(folder / "offsets" / str(number)).read_text() for number in range(3)] == after
    # With a checksum of the old text, Hadoop would reject the new text; without a checksum it reads the file.
    assert [(folder / "offsets" / f".{number}.crc").exists() for number in range(3)] == [True, False, False]
    backup = {each.name: each.read_text() for each in (folder / "offsets-kafka-group").iterdir()}
    assert backup == {"1": before[1], "2": before[2]}
    assert main([*words, "--execute"]) == 0
    assert "no offsets of kafka-group; no changes were made" in capsys.readouterr().out
    assert [(folder / "offsets" / str(number)).read_text() for number in range(3)] == after


class InterruptedFolder(LocalFolder):
    """A folder whose writes stop after a number of writes, as if the process were killed there."""

    def __init__(self, root: Path, writes: int) -> None:
        super().__init__(root)
        self._left = writes

    def replace(self, name: str, text: str) -> None:
        """Write the file, or raise KeyboardInterrupt after the last allowed write."""
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        super().replace(name, text)


def rewrite_all(folder: LocalFolder) -> None:
    """Rewrite each batch that has `kafka-group` offsets."""
    for batch in group_batches(folder):
        rewrite(folder, batch)


def tree_of(folder: Path) -> dict[str, str]:
    """Return the text of each file below a folder."""
    return {str(each.relative_to(folder)): each.read_text() for each in folder.rglob("*") if each.is_file()}


def test_checkpoint_rewrite_may_be_interrupted_at_each_write(tmp_path: Path) -> None:
    """After any number of writes, `kafka-group` reads the same offsets as before. A second call completes."""
    ours = '{"version":1,"group":"g","offsets":{"a":{"0":NUMBER}}START}'
    first = ours.replace("NUMBER", "3").replace("START", ',"start":{"a":{"0":2}}')
    second = ours.replace("NUMBER", "5").replace("START", "")

    def offsets(folder: Path) -> list[OffsetsByPartition]:
        logs = [(folder / "offsets" / name).read_text().splitlines()[2] for name in ("0", "1")]
        return [read_offsets(json.loads(log), "g").offsets for log in logs]

    whole = folder_of(tmp_path / "whole", first, second, done=0)
    rewrite_all(LocalFolder(whole))
    assert tree_of(whole)["sources/0/0"] == '\0v1\n{"a":{"0":2}}'
    for writes in range(5):
        folder = folder_of(tmp_path / str(writes), first, second, done=0)
        before = offsets(folder)
        with pytest.raises(KeyboardInterrupt):
            rewrite_all(InterruptedFolder(folder, writes))
        assert offsets(folder) == before == [{("a", 0): 3}, {("a", 0): 5}]
        rewrite_all(LocalFolder(folder))
        assert tree_of(folder) == tree_of(whole)
