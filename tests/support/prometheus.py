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

_FETCH_S, _ANSWER_S = 300.0, 10.0
_NEEDS = "Prometheus is needed: put its program on the path (Debian's package `prometheus` has it)"
_SETTINGS = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: consumers
    static_configs: [{{targets: ["{target}"]}}]
"""


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server that scrapes each second."""

    url: str

    def numbers(self, query: str) -> list[str]:
        """The values of an instant query's series, as Prometheus writes them; an invalid query raises `ValueError`."""
        where = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(where, timeout=_ANSWER_S) as answer:  # noqa: S310 - loopback
                said = json.load(answer)
        except urllib.error.HTTPError as refused:
            raise ValueError(f"{query}: {refused.read().decode()}") from refused
        return [series["value"][1] for series in said["data"]["result"]]


@contextmanager
def prometheus(target: str) -> Iterator[Prometheus]:
    """A server that scrapes `target` (HOST:PORT), for as long as the context lasts.

    Raises:
        RuntimeError: it cannot be installed or started; the text names what is missing.
    """
    program = _program()
    (port,) = draw_ports(1)
    with tempfile.TemporaryDirectory(prefix="prometheus-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "settings.yml").write_text(_SETTINGS.format(target=target))
        words = [f"--config.file={folder / 'settings.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
        log = folder / "log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [str(program), *words, f"--web.listen-address={LOOPBACK}:{port}"], stdout=output, stderr=output
            )
            try:
                server = Prometheus(f"http://{LOOPBACK}:{port}")
                # Until it has read what it keeps it refuses, which is a ValueError here.
                ask = partial(server.numbers, "vector(1)")
                wait_until_served("Prometheus", process, log, ask, (OSError, ValueError))
                yield server
            finally:
                process.kill()
                process.wait()


def promtool(*arguments: str | Path) -> str:
    """The output of `promtool` with these arguments.

    Raises:
        RuntimeError: it failed, or it cannot be installed; the text has its output.
    """
    words = [str(_program("promtool")), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
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
        # Unpacked, not installed: its package would start a service.
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            _run([apt, "download", "prometheus"], Path(folder))
            (package,) = Path(folder).glob("*.deb")
            _run([unpack, "--extract", str(package), str(kept)], Path(folder))
    return program


def _run(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_FETCH_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{_NEEDS}; {' '.join(words)} said: {done.stderr[-2000:]}")
