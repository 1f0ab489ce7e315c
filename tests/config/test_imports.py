"""Checking a plain dict must not load pydantic, which takes longer to load than a consumer takes to join."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from consumer_membership.config.environment import PREFIX

_PROGRAM = """
import sys
from consumer_membership import Consumer
Consumer({"bootstrap.servers": "localhost:1", "group.id": "g"}).close()
from consumer_membership.config import ConsumerConfig
print(ConsumerConfig.from_mapping({"group.id": "g"}).client_id)
print([name for name in sys.modules if name.startswith("pydantic")])
"""


@pytest.mark.parametrize(
    ("variables", "client"), [({}, "rdkafka"), ({f"{PREFIX}CLIENT_ID": "from-environment"}, "from-environment")]
)
def test_consumer_from_dict_does_not_import_pydantic(variables: Mapping[str, str], client: str) -> None:
    """A consumer created from a dict honors environment variables and does not import pydantic."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    program = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env={**inherited, **variables}, capture_output=True, text=True, check=True
    )
    assert program.stdout.splitlines() == [client, "[]"]
