"""Run the tests of Kerberos in an environment whose librdkafka supports GSSAPI."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.frameworks.environments import ROOT, environment, variables
from tests.frameworks.librdkafka_with_gssapi import VERSION, compiled

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

#: The requirements of the tests.
OF_TESTS = ("hypothesis>=6.100", "kio>=0.6.5,<0.7", "psutil>=6", "pytest>=8.3", "pytest-timeout>=2.3", "trustme>=1.2")
#: The requirements of a Spark session and its tasks.
OF_SPARK = ("pandas>=2.2,<3", "pyarrow>=18", "pyspark==4.0.0")


def test_members_log_in_with_kerberos_on_both_connections() -> None:
    """The tests pass: keytab, ticket cache, renewals, an unavailable KDC, missing tickets, the guardian, and Spark."""
    home = compiled()
    # Without optimization, because gssapi has two dozen C files to compile.
    compiling = {"CFLAGS": f"-O0 -I{home}/include", "LDFLAGS": f"-L{home}/lib"}
    source = ("--no-binary=confluent-kafka", f"confluent-kafka=={VERSION}")
    python = environment("kerberos", *source, "gssapi>=1.8", *OF_TESTS, *OF_SPARK, compiling=compiling)
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kerberos/logins.py"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**variables(), "LD_LIBRARY_PATH": f"{home}/lib"},
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert re.search(r"\b10 passed", done.stdout), done.stdout
