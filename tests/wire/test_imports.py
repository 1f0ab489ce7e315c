"""Which of kio's schemas importing the package loads, and a request."""

import subprocess
import sys

import pytest

from consumer_membership.wire.schemas import OF_EVERY_MEMBER

_PRINT = r"""
import re, sys
print(*sorted(name for name in sys.modules if re.fullmatch(r"kio\.schema\.\w+\.v\d+\.(request|response)", name)))
"""
_IMPORT = "import consumer_membership.runtime.network.broker_client"
_SPEAK = """
from consumer_membership.wire.requests import metadata_of_names
from consumer_membership.wire.versions import Api, BrokerVersions, VersionRange
metadata_of_names(BrokerVersions({{Api.METADATA: VersionRange(0, {newest})}}), None)
"""


def loaded(program: str) -> set[str]:
    """The schemas that a process has loaded after this."""
    done = subprocess.run([sys.executable, "-c", program + _PRINT], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def modules(*schemas: str) -> set[str]:
    """The modules of these schemas."""
    return {f"kio.schema.{schema}.{part}" for schema in schemas for part in ("request", "response")}


@pytest.mark.slow
def test_package_loads_what_every_member_needs_and_no_more() -> None:
    """Each of kio's schemas costs 4 to 9 ms."""
    assert loaded(_IMPORT) == modules(*OF_EVERY_MEMBER)


@pytest.mark.slow
@pytest.mark.parametrize(("newest", "version"), [(8, 7), (12, 12), (13, 13)])
def test_request_loads_its_own_version_only(newest: int, version: int) -> None:
    """Other brokers are no reason to load what is not spoken with this one."""
    assert loaded(_SPEAK.format(newest=newest)) == modules(*OF_EVERY_MEMBER, f"metadata.v{version}")
