"""What `import consumer_membership` imports, by name: every process waits for it before its first consumer.

Whoever is named here as heavy is imported where it is needed, at the earliest when a consumer is made that needs it.
What every consumer needs is imported in time, and not between its constructor and its first record.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import consumer_membership
from consumer_membership import spark
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique

OURS = "consumer_membership"
WAYS = (f"import {OURS}", f"from {OURS} import Consumer", f"from {OURS} import *")

#: Rooms that only other programs need.
OTHER_ROOMS = ("admin", "aio", "cli", "demo", "devbroker", "observe", "spark")
#: Of the rooms that a consumer needs: what only another protocol, TLS, SASL, the guardian or an assignor does.
OF_SOME_CONSUMERS = (
    "health.report",
    "assignors.checked",
    "assignors.sticky",
    "assignors.sticky_balance",
    "assignors.sticky_quotas",
    "membership.classic.leader",
    "membership.classic.protocol",
    "membership.classic.states",
    "assignors.validation",
    "config.patterns",
    "metrics.catalogue",
    "metrics.exposition",
    "runtime.guardian",
    "runtime.network.passwords",
    "runtime.network.tls",
    "runtime.probes",
    "wire.authentication",
    "wire.sasl",
)
#: What the wire and the configuration once stood on, and what came with it: kio is the tests' own, and pydantic is for
#: `ConsumerSettings`.
NO_LONGER = (
    "annotated_types",
    "argparse",
    "csv",
    "decimal",
    "dotenv",
    "email",
    "fractions",
    "importlib.metadata",
    "ipaddress",
    "kio",
    "pydantic",
    "pydantic_core",
    "pydantic_settings",
    "shlex",
    "tempfile",
    "typing_extensions",
    "typing_inspection",
    "zipfile",
    "zoneinfo",
)
#: What the tests, tools and other rooms use, and what Python's own library has for rarer things. Not asyncio, logging,
#: ssl and subprocess: confluent-kafka imports them itself.
FOREIGN = (
    "confluent_kafka.admin",
    "confluent_kafka.avro",
    "confluent_kafka.schema_registry",
    "ctypes",
    "docker",
    "hypothesis",
    "logging.config",
    "multiprocessing",
    "pandas",
    "psutil",
    "psycopg",
    "pyarrow",
    "pyspark",
    "requests",
    "rich",
    "sqlite3",
    "testcontainers",
    "unittest",
    "xml",
)
#: Of the spark room: what a process that plans or reads a batch of `kafka-group` does without.
OTHERS_THAN_A_READ = (
    "checkpoint_folder",
    "doctor",
    "group_read",
    "mirror",
    "reader_member",
    "runs",
    "sinks",
    "source.batch",
    "source.hold",
    "source.stream",
    "task",
)
HEAVY = frozenset({*(f"{OURS}.{name}" for name in (*OTHER_ROOMS, *OF_SOME_CONSUMERS)), *NO_LONGER, *FOREIGN})

_PRINT = "\nprint(*sys.modules)"
#: Those of our classes that the standard library has made: it describes their fields at once, a light one when asked.
_PRINT_DATACLASSES = f"""
import inspect
for module in [module for name, module in sys.modules.items() if name.startswith("{OURS}")]:
    for cls in vars(module).values():
        if inspect.isclass(cls) and cls.__module__ == module.__name__:
            if isinstance(inspect.getattr_static(cls, "__dataclass_fields__", None), dict):
                print(f"{{module.__name__}}.{{cls.__name__}}")
"""
#: The class, without the package's door.
_CLASS_ALONE = """
import sys, types
package = sys.modules["{ours}"] = types.ModuleType("{ours}")
package.__path__ = [{folder!r}]
import {ours}.clients.consumer
"""
_FIRST_RECORD = """
import sys
from {ours} import Consumer
before = set(sys.modules)
consumer = Consumer({{"bootstrap.servers": "{servers}", "group.id": "{group}", "auto.offset.reset": "earliest"}})
consumer.subscribe(["{topic}"])
while (record := consumer.poll(1.0)) is None or record.error():
    pass
print(*(set(sys.modules) - before))
consumer.close()
"""


def printed(program: str) -> set[str]:
    """The names that a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def loaded(statement: str) -> set[str]:
    """The modules of an interpreter after this."""
    return printed(f"import sys\n{statement}{_PRINT}")


@pytest.mark.slow
@pytest.mark.parametrize("statement", WAYS)
def test_nothing_heavy_is_imported(statement: str) -> None:
    """A module that only some need, or a library for it, is none of those that every process imports."""
    assert sorted(loaded(statement) & HEAVY) == []


@pytest.mark.slow
def test_every_dataclass_is_a_light_one() -> None:
    """One that the standard library makes costs ten times as much at the import (`light_dataclasses`).

    The table of keys is made of the fields of one, whose descriptions a light class has made by the standard library.
    """
    described = f"{OURS}.config.model.ConsumerConfig"
    assert sorted(printed(f"import sys\nimport {OURS}{_PRINT_DATACLASSES}")) == [described]


@pytest.mark.slow
def test_packages_door_imports_little_beside_the_class() -> None:
    """Every name that the package offers comes with what a consumer needs anyway; else it has to come lazily.

    What looks confluent-kafka's names up is the door's own.
    """
    alone = _CLASS_ALONE.format(ours=OURS, folder=str(Path(consumer_membership.__file__).parent))
    assert sorted(loaded(f"import {OURS}") - loaded(alone)) == [f"{OURS}.clients.names"]


@pytest.mark.slow
def test_spark_source_is_imported_without_what_only_other_processes_need() -> None:
    """A worker that plans or reads a batch imports no member, sink, run or admin tool; a query starts several."""
    found = loaded(f"import {OURS}.spark.source.data_source")
    others = ("admin", *(f"spark.{name}" for name in OTHERS_THAN_A_READ))
    assert sorted(found & {f"{OURS}.{name}" for name in others}) == []


@pytest.mark.slow
def test_names_of_the_spark_package_are_imported_when_they_are_used() -> None:
    """Each name of `__all__` has a module, is found, and is shown by `dir`."""
    program = f"from {OURS} import spark\nfor name in spark.__all__: print(name, getattr(spark, name).__module__)"
    assert len(printed(program)) > len(spark.__all__)
    assert spark._HOMES.keys() == set(spark.__all__) <= set(dir(spark))
    assert sorted(loaded(f"import {OURS}.spark") & {f"{OURS}.spark.{name}" for name in OTHERS_THAN_A_READ}) == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = spark.nothing


def test_what_is_heavy_exists() -> None:
    """A module of ours that was renamed would come back without a word."""
    folder = Path(consumer_membership.__file__).parent
    ours = HEAVY | {f"{OURS}.spark.{name}" for name in OTHERS_THAN_A_READ}
    paths = {name: folder.joinpath(*name.split(".")[1:]) for name in ours if name.startswith(OURS)}
    assert [name for name, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").is_file())] == []


@pytest.mark.integration
@pytest.mark.slow
def test_nothing_is_imported_between_constructor_and_first_record(kafka: Broker) -> None:
    """What every consumer needs is there before it is made: an import is no lighter for coming later."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 10)
    program = _FIRST_RECORD.format(ours=OURS, servers=kafka.bootstrap_servers, group=unique("group"), topic=topic)
    assert sorted(printed(program)) == []
