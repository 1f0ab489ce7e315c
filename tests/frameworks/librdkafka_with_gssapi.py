"""Compile librdkafka with GSSAPI, which no wheel of confluent-kafka includes, once in this user's cache.

The source is in the npm package of Confluent's JavaScript client. The compilation needs Debian's packages gcc, make,
npm, libsasl2-dev, libssl-dev and zlib1g-dev.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.frameworks.environments import FOLDER

#: The version of librdkafka in that package; confluent-kafka must have the same version.
VERSION = "2.15.1"
_PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
_PROGRAMS = ("gcc", "make", "npm")
_NEEDS = "install Debian's packages gcc, make, npm, libsasl2-dev, libssl-dev and zlib1g-dev"


def compiled() -> Path:
    """Return the folder with `include` and `lib`; compile the library if it does not exist.

    Raises:
        AssertionError: The library cannot be compiled; the text has the required packages.
    """
    home = FOLDER / f"librdkafka-gssapi-{VERSION}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "lib" / "librdkafka.so").exists():
            missing = [name for name in _PROGRAMS if shutil.which(name) is None]
            assert not missing, f"{', '.join(missing)} missing: {_NEEDS}"
            with tempfile.TemporaryDirectory() as work:
                _compile(Path(work), home)
    return home


def _compile(work: Path, home: Path) -> None:
    _run(work, "npm", "pack", "--silent", _PACKAGE)
    (archive,) = work.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(work, filter="data")
    source = work / "package" / "deps" / "librdkafka"
    # The files of npm's archives are not executable.
    for script in (source / "configure", *(source / "mklove").iterdir()):
        if script.is_file():
            script.chmod(0o755)
    _run(source, "./configure", f"--prefix={home}", "--enable-gssapi", "--disable-curl", "--disable-zstd")
    # Only `src` is compiled, without the C++ library.
    _run(source / "src", "make")
    _run(source / "src", "make", "install")


def _run(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed; {_NEEDS}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
