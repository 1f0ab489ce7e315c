"""Virtual environments for frameworks, because their pinned requirements conflict in a common environment.

Each environment is created once, in this user's cache, from the requirements of the framework and of this package. It
does not contain this package: programs receive the path of these sources (`variables`), so that several copies of the
sources can share the environment.
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
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = Path.home() / ".cache" / "consumer-membership" / "frameworks"
_PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: The requirements of this package.
DEPENDENCIES: tuple[str, ...] = tuple(_PYPROJECT["project"]["dependencies"])
#: The release of FastStream that tests and benchmarks use.
FASTSTREAM = "faststream[confluent]==0.7.8"
#: The file that marks an environment as complete.
_COMPLETE = "complete"


def oldest_confluent_kafka() -> str:
    """Return the oldest release of confluent-kafka that this package supports, as a pip requirement."""
    (floor,) = re.findall(r"confluent-kafka>=([\d.]+)", " ".join(DEPENDENCIES))
    return f"confluent-kafka=={floor}.0"


def other_pythons() -> list[str]:
    """Return the minor versions of Python that the package supports, except the version of this interpreter."""
    names = " ".join(_PYPROJECT["project"]["classifiers"])
    own = f"3.{sys.version_info.minor}"
    return [version for version in re.findall(r"Python :: (3\.\d+)", names) if version != own]


def interpreter(version: str) -> str | None:
    """Return a Python of this minor version from the PATH or from pyenv; None if this machine has none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python")))]
    # A program on the PATH may be a shim for a version that is not installed.
    return next((one for one in found if one is not None and _version_of(one).startswith(f"{version}.")), None)


def _version_of(python: str) -> str:
    asked = "import platform; print(platform.python_version())"
    return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False).stdout.strip()


def environment(
    name: str,
    *requirements: str,
    python: str = sys.executable,
    compiling: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Return the interpreter of the environment with these requirements and this package's; create it if needed.

    `compiling` has the environment variables for packages that are compiled.

    Raises:
        AssertionError: pip cannot install the requirements together on this Python; the text has pip's output.
    """
    wanted = [*requirements, *DEPENDENCIES]
    version = _version_of(python)
    digest = hashlib.sha256("\n".join([version, *wanted, *compiling.values()]).encode()).hexdigest()[:12]
    home = FOLDER / f"{name}-{digest}"
    made = home / "bin" / "python"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / _COMPLETE).exists():
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run([python, "-m", "venv", str(home)], check=True)
            command = [str(made), "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted]
            done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **compiling})
            assert done.returncode == 0, f"{wanted} cannot be installed on Python {version}:\n{done.stderr}"
            (home / _COMPLETE).touch()
    return made


def variables() -> Mapping[str, str]:
    """Return the environment variables with which the Python of an environment finds these sources."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
