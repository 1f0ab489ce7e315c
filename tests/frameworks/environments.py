"""Virtual environments of frameworks, whose pins would meet this package's and each other's in one.

Each is made once, in this user's cache, of what the framework and this package ask for. This package itself is not in
it: whoever runs something there gives the path of these sources, so that several copies of them share it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = Path.home() / ".cache" / "consumer-membership" / "frameworks"
_PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: What this package is installed with.
DEPENDENCIES: tuple[str, ...] = tuple(_PYPROJECT["project"]["dependencies"])
#: There when everything is.
_COMPLETE = "complete"


def oldest_confluent_kafka() -> str:
    """The oldest release that this package may be installed with, as pip's requirement."""
    (floor,) = re.findall(r"confluent-kafka>=([\d.]+)", " ".join(DEPENDENCIES))
    return f"confluent-kafka=={floor}.0"


def environment(name: str, *requirements: str) -> Path:
    """The interpreter of the environment with these requirements and this package's, made if it is not there yet.

    Raises:
        AssertionError: pip cannot install them together on this Python; its words are in it.
    """
    wanted = [*requirements, *DEPENDENCIES]
    digest = hashlib.sha256("\n".join([sys.version, *wanted]).encode()).hexdigest()[:12]
    home = FOLDER / f"{name}-{digest}"
    python = home / "bin" / "python"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / _COMPLETE).exists():
            shutil.rmtree(home, ignore_errors=True)
            venv.create(home, with_pip=True, symlinks=True)
            command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            version = ".".join(map(str, sys.version_info[:3]))
            assert done.returncode == 0, f"{wanted} cannot be installed on Python {version}:\n{done.stderr}"
            (home / _COMPLETE).touch()
    return python


def variables() -> Mapping[str, str]:
    """The environment variables with which an environment's Python finds these sources."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
