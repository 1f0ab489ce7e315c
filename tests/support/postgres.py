"""A real PostgreSQL for the tests: an existing server, or a server that this module starts.

The server is, in this order: the server that `POSTGRES_CONNINFO` names; a server with `initdb` and `postgres` from the
PATH or from Debian's folder; a server with binaries that `mvn` fetches from Maven Central. A started server listens on
one address only (loopback by default), requires a password, and ends with the context.
"""

from __future__ import annotations

import os
import platform
import pwd
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from consumer_membership.devbroker.java import cache_folder
from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports
from tests.support.waiting import PATIENCE_S, wait_until_served

PASSWORD = "never-to-be-printed"  # noqa: S105 - of a server that runs only during the tests
_NEEDS = (
    "a PostgreSQL server is needed: set POSTGRES_CONNINFO, or install a server (initdb and postgres on the PATH or in"
    " /usr/lib/postgresql/*/bin), or install mvn, which fetches the binaries"
)
_FETCH_S = 300.0
_ARTIFACT_VERSION = "17.5.0"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>postgres-binaries</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>io.zonky.test.postgres</groupId>
    <artifactId>embedded-postgres-binaries-{system}-{machine}</artifactId><version>{version}</version>
  </dependency></dependencies>
</project>
"""
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}
# PostgreSQL refuses to run as root. A separate process changes the user, because a function before exec (preexec_fn) is
# not safe in a process with threads. Linux sends SIGQUIT to the server when its starter ends, so that its child
# processes also end. The user is changed first, because a change of the user id resets this setting.
_LAUNCH = """
import ctypes, os, signal, sys
starter, user, group, *command = sys.argv[1:]
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(int(group))
    os.setuid(int(user))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)
    if os.getppid() != int(starter):
        sys.exit("the process that started this one has ended")
os.execv(command[0], command)
"""


@contextmanager
def postgres(host: str = LOOPBACK) -> Iterator[str]:
    """Run a server that listens on this address, within the context; yield its connection string.

    Raises:
        RuntimeError: No server exists or can be started; the text names the missing requirement.
    """
    if host == LOOPBACK and (given := os.environ.get("POSTGRES_CONNINFO")):
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        user = pwd.getpwnam("nobody") if os.getuid() == 0 else pwd.getpwuid(os.getuid())
        bin_folder = _installed() or _fetched(folder)
        os.chown(folder, user.pw_uid, user.pw_gid)
        with _started(bin_folder, folder, user, host) as conninfo:
            yield conninfo


@contextmanager
def _started(bin_folder: Path, folder: Path, user: pwd.struct_passwd, host: str) -> Iterator[str]:
    data, log = folder / "data", folder / "log"
    password_file = folder / "password"
    password_file.write_text(PASSWORD)
    launch = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), str(user.pw_uid), str(user.pw_gid)]
    init = [
        "-D",
        str(data),
        "-U",
        "tester",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "-E",
        "UTF8",
        "--no-locale",
    ]
    made = subprocess.run(
        [*launch, str(bin_folder / "initdb"), *init, "--no-sync"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        cwd=folder,
    )
    if made.returncode:
        raise RuntimeError(f"{bin_folder / 'initdb'} failed:\n{made.stdout}{made.stderr}")
    with (data / "pg_hba.conf").open("a") as rules:
        # Allows hosts in the network of the address; initdb already allows loopback.
        rules.write("host all all samenet scram-sha-256\n")
    (port,) = draw_ports(1, host=host)
    settings = {
        "listen_addresses": host,
        "port": port,
        "unix_socket_directories": "",
        "fsync": "off",
        "shared_buffers": "32MB",
    }
    options = [option for key, value in settings.items() for option in ("-c", f"{key}={value}")]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*launch, str(bin_folder / "postgres"), "-D", str(data), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
        )
    try:
        conninfo = make_conninfo(host=host, port=port, user="tester", password=PASSWORD, dbname="postgres")
        wait_until_served(
            "the server", server, log, lambda: psycopg.connect(conninfo).close(), psycopg.OperationalError
        )
        yield conninfo
    finally:
        # A fast shutdown ends sessions instead of waiting for them.
        server.send_signal(signal.SIGINT)
        server.wait(PATIENCE_S)


def _installed() -> Path | None:
    """Return the folder of an installed server's programs; None if no server is installed."""
    found = [Path(path).resolve().parent for path in filter(None, [shutil.which("initdb")])]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in found if {"initdb", "postgres"} <= {p.name for p in folder.iterdir()}), None)


def _fetched(folder: Path) -> Path:
    """Return the folder of the programs that Maven fetched, unpacked into a folder that the server's user can read."""
    jar = _jar()
    with zipfile.ZipFile(jar) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".txz"))
        with outer.open(name) as packed, tarfile.open(fileobj=packed, mode="r:xz") as inner:
            inner.extractall(folder / "server", filter="data")
    return folder / "server" / "bin"


def _jar() -> Path:
    kept = cache_folder() / f"postgres-{_ARTIFACT_VERSION}"
    if not list(kept.glob("*.jar")):
        maven, machine = shutil.which("mvn"), _MACHINES.get(platform.machine().lower())
        if maven is None or machine is None:
            raise RuntimeError(_NEEDS)
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".postgres-", dir=kept.parent) as name:
            pom = Path(name) / "pom.xml"
            pom.write_text(_POM.format(system=platform.system().lower(), machine=machine, version=_ARTIFACT_VERSION))
            output = Path(name) / "jars"
            command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={output}"]
            run = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S, check=False)
            if run.returncode:
                raise RuntimeError(f"{_NEEDS}. It printed:\n{run.stdout}{run.stderr}")
            # If several processes fetch the jars, each of them moves its own jars here and replaces equal files.
            kept.mkdir(exist_ok=True)
            for fetched in output.glob("*.jar"):
                fetched.replace(kept / fetched.name)
    return next(kept.glob("*.jar"))
