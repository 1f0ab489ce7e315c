"""A real Prometheus for the tests, which scrapes one endpoint: the installed program, or Debian's, fetched once.

It listens on loopback only, and ends with the context.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from consumer_membership.devbroker.java import cache_folder
from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports
from tests.support.waiting import wait_until_served

_FETCH_S, _RESPONSE_S = 300.0, 10.0
_NEEDS = "Prometheus is needed: put its program on the path (Debian's package `prometheus` has it)"
_SETTINGS = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: consumers
    static_configs: [{{targets: ["{target}"]}}]
"""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server that scrapes its target each second."""

    url: str

    def numbers(self, query: str) -> list[str]:
        """Return the values of an instant query as texts; raise `ValueError` if the query is invalid."""
        url = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(url, timeout=_RESPONSE_S) as response:  # noqa: S310 - loopback
                content = json.load(response)
        except urllib.error.HTTPError as error:
            raise ValueError(f"{query}: {error.read().decode()}") from error
        return [series["value"][1] for series in content["data"]["result"]]


@contextmanager
def prometheus(target: str) -> Iterator[Prometheus]:
    """Run a server that scrapes `target` (HOST:PORT), within the context.

    Raises:
        RuntimeError: The server cannot be installed or started; the text names the missing requirement.
    """
    program = _program()
    (port,) = draw_ports(1)
    with tempfile.TemporaryDirectory(prefix="prometheus-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "settings.yml").write_text(_SETTINGS.format(target=target))
        options = [f"--config.file={folder / 'settings.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        log = folder / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [str(program), *options, f"--web.listen-address={LOOPBACK}:{port}"], stdout=output, stderr=output
            )
            try:
                server = Prometheus(f"http://{LOOPBACK}:{port}")
                # Prometheus responds with errors until it has read its stored data; then `numbers` raises ValueError.
                query = partial(server.numbers, "vector(1)")
                wait_until_served("Prometheus", process, log, query, (OSError, ValueError))
                yield server
            finally:
                process.kill()
                process.wait()


def promtool(*arguments: str | Path) -> str:
    """Return the output of `promtool` with these arguments.

    Raises:
        RuntimeError: `promtool` failed, or cannot be installed; the text has the output.
    """
    command = [str(_program("promtool")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_RESPONSE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def _program(name: str = "prometheus") -> Path:
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    kept = cache_folder() / "prometheus"
    program = kept / "usr" / "bin" / name
    if not program.exists():
        apt, unpack = shutil.which("apt-get"), shutil.which("dpkg-deb")
        if apt is None or unpack is None:
            raise RuntimeError(_NEEDS)
        kept.mkdir(parents=True, exist_ok=True)
        # The package is only unpacked, because its installation would start a service.
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            _run([apt, "download", "prometheus"], Path(folder))
            (package,) = Path(folder).glob("*.deb")
            _run([unpack, "--extract", str(package), str(kept)], Path(folder))
    return program


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{_NEEDS}; {' '.join(command)} failed: {done.stderr[-2000:]}")
