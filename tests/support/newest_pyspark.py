"""The newest pyspark, in addition to the installed version: pip fetches it once for all runs of a user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from consumer_membership.devbroker.java import cache_folder

NEWEST_PYSPARK = "4.3.0"
#: The requirements of pyspark's extras `connect` and `pipelines`.
_CONNECT = (
    "grpcio>=1.76",
    "grpcio-status>=1.76",
    "googleapis-common-protos>=1.71",
    "zstandard>=0.25",
    "pyyaml>=6.0.3",
)


def newest_pyspark() -> Path:
    """Return the folder of the newest pyspark, to put on the path before the installed pyspark.

    Raises:
        RuntimeError: pip could not fetch it; the text has pip's output.
    """
    return _fetched(f"pyspark-{NEWEST_PYSPARK}", "pyspark", f"pyspark=={NEWEST_PYSPARK}")


def connect_libraries() -> Path:
    """Return the folder with the libraries of Spark Connect and declarative pipelines, to put on the path.

    Raises:
        RuntimeError: As for `newest_pyspark`.
    """
    return _fetched("pyspark-connect", "grpc_status", *_CONNECT)


def _fetched(name: str, package: str, *requirements: str) -> Path:
    folder = cache_folder() / name
    if not (folder / package / "__init__.py").exists():
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), *requirements]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise RuntimeError(f"pip could not fetch {', '.join(requirements)}: {run.stdout}{run.stderr}")
    return folder
