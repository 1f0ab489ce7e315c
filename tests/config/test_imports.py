"""What checking a plain dict loads: not pydantic, which takes longer to load than a consumer to join."""

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
def test_consumer_of_a_dict_loads_no_pydantic(variables: Mapping[str, str], client: str) -> None:
    """Neither without variables of the environment nor with one, which is honoured."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    program = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env={**inherited, **variables}, capture_output=True, text=True, check=True
    )
    assert program.stdout.splitlines() == [client, "[]"]
