"""The modules that `import consumer_membership` loads.

Every process waits for them before its first consumer. Modules listed as heavy are imported where they are needed, at
the earliest by a consumer that needs them. Modules that every consumer needs are imported with the package, not between
constructor and first record.
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
from tests.support.waiting import PROCESS_S

OURS = "consumer_membership"
WAYS = (f"import {OURS}", f"from {OURS} import Consumer", f"from {OURS} import *")

#: Subpackages that applications with only a consumer do not need.
OTHER_ROOMS = ("admin", "aio", "cli", "demo", "devbroker", "kafkatest", "observe", "processing", "spark", "testing")
#: Modules that only some consumers need, for example for a protocol, TLS, SASL, the guardian or an assignor.
OF_SOME_CONSUMERS = (
    "health.handlers",
    "health.report",
    "assignors.checked",
    "assignors.sticky",
    "assignors.sticky_balance",
    "assignors.sticky_quotas",
    "membership.classic.assignment",
    "membership.classic.leader",
    "membership.classic.protocol",
    "membership.classic.requests",
    "membership.classic.states",
    "assignors.validation",
    "config.authorities",
    "config.patterns",
    "metrics.catalog",
    "metrics.exposition",
    "metrics.handler_ledger",
    "runtime.guardian",
    "runtime.network.identity",
    "runtime.network.passwords",
    "runtime.network.tls",
    "runtime.probes",
    "wire.authentication",
    "wire.sasl",
)
#: Modules of `LifecycleEvent`, which `import *` also loads.
OF_EVENTS = frozenset({f"{OURS}.health.handlers"})
#: Libraries that the wire and the configuration formerly used, and modules that these libraries import. Only tests use
#: kio, and only `ConsumerSettings` uses pydantic.
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
#: Libraries of tests, tools and other subpackages, and rarely used standard modules. Not asyncio, logging,
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
#: Spark modules that a process does not need to plan or read a batch of `kafka-group`.
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
#: Prints the package's classes whose fields were described eagerly by the standard dataclass decorator.
_PRINT_DATACLASSES = f"""
import inspect
for module in [module for name, module in sys.modules.items() if name.startswith("{OURS}")]:
    for cls in vars(module).values():
        if inspect.isclass(cls) and cls.__module__ == module.__name__:
            if isinstance(inspect.getattr_static(cls, "__dataclass_fields__", None), dict):
                print(f"{{module.__name__}}.{{cls.__name__}}")
"""
#: Imports the class without the package's `__init__`.
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
    """Return the names that a fresh interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PROCESS_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def loaded(statement: str) -> set[str]:
    """Return the modules that an interpreter has loaded after this statement."""
    return printed(f"import sys\n{statement}{_PRINT}")


@pytest.mark.slow
@pytest.mark.parametrize("statement", WAYS)
def test_import_of_the_package_loads_no_heavy_module(statement: str) -> None:
    """The import loads no module or library that only some processes need."""
    needed = OF_EVENTS if statement.endswith("*") else frozenset()
    assert sorted(loaded(statement) & HEAVY - needed) == []


@pytest.mark.slow
def test_package_dataclasses_are_light_dataclasses() -> None:
    """A standard dataclass takes ten times as long to import as one of `light_dataclasses`.

    The table of keys needs the fields of `ConsumerConfig`, so its fields are described at the import.
    """
    described = f"{OURS}.config.model.ConsumerConfig"
    assert sorted(printed(f"import sys\nimport {OURS}{_PRINT_DATACLASSES}")) == [described]


@pytest.mark.slow
def test_import_of_the_package_loads_little_beyond_the_consumer_class() -> None:
    """The package's `__init__` loads only the module that looks up confluent-kafka's names in addition to the class."""
    alone = _CLASS_ALONE.format(ours=OURS, folder=str(Path(consumer_membership.__file__).parent))
    assert sorted(loaded(f"import {OURS}") - loaded(alone)) == [f"{OURS}.clients.names"]


@pytest.mark.slow
def test_import_of_the_spark_source_loads_no_member_sink_run_or_admin_modules() -> None:
    """A worker that plans or reads a batch loads no member, sink, run or admin module.

    A query starts several workers.
    """
    found = loaded(f"import {OURS}.spark.source.data_source")
    others = ("admin", *(f"spark.{name}" for name in OTHERS_THAN_A_READ))
    assert sorted(found & {f"{OURS}.{name}" for name in others}) == []


@pytest.mark.slow
def test_spark_package_imports_its_names_on_first_use() -> None:
    """Each name of `__all__` resolves on first use and is listed by `dir`; an unknown name raises AttributeError."""
    program = f"from {OURS} import spark\nfor name in spark.__all__: print(name, getattr(spark, name).__module__)"
    assert len(printed(program)) > len(spark.__all__)
    assert spark._HOMES.keys() == set(spark.__all__) <= set(dir(spark))
    assert sorted(loaded(f"import {OURS}.spark") & {f"{OURS}.spark.{name}" for name in OTHERS_THAN_A_READ}) == []
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = spark.nothing


def test_heavy_module_list_names_existing_modules() -> None:
    """Each listed module of the package exists; a renamed one would be loaded again without a failure."""
    folder = Path(consumer_membership.__file__).parent
    ours = HEAVY | {f"{OURS}.spark.{name}" for name in OTHERS_THAN_A_READ}
    paths = {name: folder.joinpath(*name.split(".")[1:]) for name in ours if name.startswith(OURS)}
    assert [name for name, path in paths.items() if not (path.is_dir() or path.with_suffix(".py").is_file())] == []


@pytest.mark.integration
@pytest.mark.slow
def test_consumer_imports_nothing_between_constructor_and_first_record(kafka: Broker) -> None:
    """Modules that every consumer needs are loaded with the package, because a later import takes as long."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 10)
    program = _FIRST_RECORD.format(ours=OURS, servers=kafka.bootstrap_servers, group=unique("group"), topic=topic)
    assert sorted(printed(program)) == []
