"""What importing the package must not load."""

import subprocess
import sys

import pytest

_PRINT = r"""
import re, sys
print(*sorted(name for name in sys.modules if re.fullmatch(r"kio\.schema\.\w+\.v\d+\.(request|response)", name)))
"""
_IMPORT = "import consumer_membership.runtime.broker_client"
_SPEAK = """
from consumer_membership.wire.requests import metadata_of_names
from consumer_membership.wire.versions import Api, BrokerVersions, VersionRange
metadata_of_names(BrokerVersions({{Api.METADATA: VersionRange(0, {newest})}}), None)
"""


def loaded(program: str) -> list[str]:
    """The schemas that a process has loaded after this."""
    done = subprocess.run([sys.executable, "-c", program + _PRINT], check=True, capture_output=True, text=True)
    return done.stdout.split()


@pytest.mark.slow
def test_no_schema_is_loaded_before_it_is_spoken() -> None:
    """Each of kio's schemas costs 4 to 9 ms; a program that only imports the package pays for none."""
    assert loaded(_IMPORT) == []


@pytest.mark.slow
@pytest.mark.parametrize(("newest", "version"), [(8, 7), (12, 12), (13, 13)])
def test_request_loads_its_own_version_only(newest: int, version: int) -> None:
    """Old brokers are no reason to load what is not spoken with them."""
    expected = [f"kio.schema.metadata.v{version}.{part}" for part in ("request", "response")]
    assert loaded(_SPEAK.format(newest=newest)) == expected
