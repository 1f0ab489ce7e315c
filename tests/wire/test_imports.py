"""What importing the package must not load."""

import subprocess
import sys

import pytest

_PROGRAM = r"""
import re, sys
import consumer_membership.runtime.broker_client
print(*sorted(name for name in sys.modules if re.fullmatch(r"kio\.schema\.\w+\.v\d+\.(request|response)", name)))
"""


@pytest.mark.slow
def test_no_schema_is_loaded_before_it_is_spoken() -> None:
    """Each of kio's schemas costs 4 to 9 ms; a program that only imports the package pays for none."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
