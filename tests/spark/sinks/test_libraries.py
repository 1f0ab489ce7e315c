"""The sinks' libraries are extras: they are imported when a sink is constructed, not with the package."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from consumer_membership.errors import ConfigurationError
from consumer_membership.installation import install_command
from consumer_membership.spark.sinks import ParquetSink, PostgresSink
from tests.support.waiting import PROCESS_S

_PROGRAM = """
import sys
from consumer_membership.spark.sinks import KafkaSink
KafkaSink({"bootstrap.servers": "127.0.0.1:1"}, list)
print(sorted({"obstore", "psycopg", "pyarrow", "pandas", "pyspark"} & set(sys.modules)))
"""


@pytest.mark.slow
def test_import_of_sinks_needs_no_optional_library() -> None:
    """A user of the Kafka sink needs no library of another sink."""
    run = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=PROCESS_S
    )
    assert run.stdout == "[]\n"


def test_missing_psycopg_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """`PostgresSink` raises on the driver when it is constructed."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match=re.escape(install_command("postgres"))):
        PostgresSink.rows("host=there", "t", ["a"], lambda m: (m.offset(),))


def test_missing_pyarrow_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`ParquetSink` raises on the driver when it is constructed."""
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigurationError, match=re.escape(install_command("spark"))):
        ParquetSink(tmp_path)


def test_missing_obstore_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ParquetSink` raises for a bucket when it is constructed; a folder does not need obstore."""
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigurationError, match=re.escape(install_command("s3"))):
        ParquetSink("s3://bucket/there")
