"""A real object store with the S3 API for the tests: Versity's gateway for a folder, which Go builds once.

It checks the conditions of `PutObject` under a lock for each object. It listens on loopback only, and ends with the
context.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from consumer_membership.devbroker.java import cache_folder
from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports
from tests.support.waiting import wait_until_served

VERSION = "v1.8.0"
BUCKET = "records"
_BUILD_S = 900.0
_NEEDS = "an object store is needed: install Go, which fetches and builds Versity's S3 gateway once"
_KEY, _SECRET = "tests", "never-to-be-printed"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A server with one bucket."""

    endpoint: str

    @property
    def options(self) -> Mapping[str, str]:
        """The options of `ParquetSink` for this server."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": _KEY,
            "secret_access_key": _SECRET,
            "region": "us-east-1",
        }

    def at(self, prefix: str) -> S3Store:
        """Return a store of the objects whose names have this prefix."""
        return S3Store(BUCKET, prefix=prefix, config=self.options, client_options={"allow_http": True})  # type: ignore[arg-type]  # a typed dict


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run a server within the context.

    Raises:
        RuntimeError: The server cannot be installed or started; the text names the missing requirement.
    """
    program = _program()
    (port,) = draw_ports(1)
    with tempfile.TemporaryDirectory(prefix="objects-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for part in ("data", "data/" + BUCKET, "attributes"):
            (folder / part).mkdir()
        options = ["--port", f"{LOOPBACK}:{port}", "--access", _KEY, "--secret", _SECRET, "--region", "us-east-1"]
        log = folder / "log"
        with log.open("w") as output:
            # Attributes of objects are stored in files, because some file systems of /tmp have no extended attributes.
            process = subprocess.Popen(
                [str(program), *options, "posix", "--sidecar", str(folder / "attributes"), str(folder / "data")],
                stdout=output,
                stderr=output,
            )
            try:
                store = ObjectStore(f"http://{LOOPBACK}:{port}")
                wait_until_served("the object store", process, log, lambda: list(obstore.list(store.at(""))), BaseError)
                yield store
            finally:
                process.kill()
                process.wait()


def _program() -> Path:
    program = cache_folder() / f"versitygw-{VERSION}" / "versitygw"
    if not program.exists():
        go = shutil.which("go")
        if go is None:
            raise RuntimeError(_NEEDS)
        program.parent.mkdir(parents=True, exist_ok=True)
        # Another process may build an equal program at the same time.
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            built = subprocess.run(
                [go, "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"],
                env={**os.environ, "GOBIN": folder},
                capture_output=True,
                text=True,
                timeout=_BUILD_S,
                check=False,
            )
            if built.returncode:
                raise RuntimeError(f"{_NEEDS}; it could not be built: {built.stderr[-2000:]}")
            (Path(folder) / program.name).replace(program)
    return program
