"""A real Kerberos KDC (MIT) for the tests, on loopback, and a Kafka broker whose SASL listener accepts its tickets.

The KDC ends with its block. It needs `krb5kdc`, `kdb5_util` and `kadmin.local`, which Debian has in the packages
krb5-kdc and krb5-admin-server.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from consumer_membership.devbroker import Broker, Security, start
from consumer_membership.devbroker.listeners import SASL
from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports
from tests.support.waiting import PATIENCE_S, wait_until

REALM = "TEST.LOCAL"
#: The brokers' principal; clients build it from the service name and the advertised host.
BROKER = f"kafka/{LOOPBACK}"
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local")
_NEEDS = "a Kerberos KDC is needed: install Debian's packages krb5-kdc and krb5-admin-server"
_ADMIN_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

_KRB5_CONF = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = {address}
  }}
"""
_KDC_CONF = """\
[kdcdefaults]
  kdc_listen = {address}
  kdc_tcp_listen = {address}
[realms]
  {realm} = {{
    database_name = {folder}/principal
    key_stash_file = {folder}/stash
    max_life = 10h
    supported_enctypes = aes256-cts-hmac-sha1-96:normal
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
"""


class Kdc:
    """A KDC with its own realm, which tests may stop and start; `environment` has the variables for its clients."""

    def __init__(self, folder: Path) -> None:
        """Create the realm's database in this empty folder, and start the KDC.

        Raises:
            RuntimeError: A program of the KDC is missing; the message names the packages.
        """
        missing = [name for name in _PROGRAMS if shutil.which(name, path=_ADMIN_PATH) is None]
        if missing:
            raise RuntimeError(f"{_NEEDS} (missing: {', '.join(missing)})")
        (port,) = draw_ports(1)
        self._folder = folder
        self.config_file = folder / "krb5.conf"
        values = {"realm": REALM, "address": f"{LOOPBACK}:{port}", "folder": folder}
        self.config_file.write_text(_KRB5_CONF.format(**values))
        (folder / "kdc.conf").write_text(_KDC_CONF.format(**values))
        self.environment: Mapping[str, str] = {
            "KRB5_CONFIG": str(self.config_file),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{folder}/ccache",
            "KRB5RCACHENAME": "none:",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._run("kdb5_util", "-r", REALM, "create", "-s", "-W", "-P", "master")
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {BROKER}")
        self.start()

    def start(self) -> None:
        """Start the KDC unless it runs, and wait until it listens."""
        if self._process is not None:
            return
        starts = self.log().count("commencing operation")
        self._process = subprocess.Popen(
            [str(shutil.which("krb5kdc", path=_ADMIN_PATH)), "-n", "-r", REALM], env={**os.environ, **self.environment}
        )
        wait_until(lambda: self.log().count("commencing operation") > starts, "the KDC", seen=self.log)

    def stop(self) -> None:
        """End the KDC's process, but keep its database."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)
            self._process = None

    def add(self, principal: str, *, lifetime_s: int = 36_000) -> str:
        """Create a principal whose tickets are valid for this time, and return the file with its key."""
        self._run("kadmin.local", "-r", REALM, "-q", f'addprinc -randkey -maxlife "{lifetime_s} seconds" {principal}')
        return self.keytab(principal)

    def keytab(self, principal: str) -> str:
        """Return a file with the current key of this principal."""
        path = self._folder / f"{principal.replace('/', '-')}.keytab"
        if not path.exists():
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -norandkey -k {path} {principal}")
        return str(path)

    def kinit(self, principal: str) -> None:
        """Fill the ticket cache of `environment`."""
        self._run("kinit", "-k", "-t", self.keytab(principal), principal)

    def kdestroy(self) -> None:
        """Empty the ticket cache, if there is one."""
        (self._folder / "ccache").unlink(missing_ok=True)

    def log(self) -> str:
        """Return the KDC's log."""
        path = self._folder / "kdc.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def logins(self, principal: str) -> int:
        """Return how many ticket-granting tickets this principal has received."""
        return len(re.findall(rf"AS_REQ .* ISSUE: .* {principal}@{REALM} for krbtgt/", self.log()))

    def _run(self, *command: str) -> None:
        program = shutil.which(command[0], path=_ADMIN_PATH)
        if program is None:
            raise RuntimeError(f"{command[0]} is needed: install Debian's package krb5-user")
        ran = subprocess.run(
            [program, *command[1:]],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"


@contextmanager
def running_kdc(folder: Path) -> Iterator[Kdc]:
    """Run a KDC in this empty folder."""
    kdc = Kdc(folder)
    try:
        yield kdc
    finally:
        kdc.stop()


@contextmanager
def kerberos_broker(
    kdc: Kdc, security: Security, version: str | None = None, properties: Mapping[str, str] | None = None
) -> Iterator[Broker]:
    """Start a broker whose SASL listener also accepts GSSAPI. The broker needs its keytab, but no running KDC."""
    module = "com.sun.security.auth.module.Krb5LoginModule required"
    keytab = f'useKeyTab=true storeKey=true isInitiator=false keyTab="{kdc.keytab(BROKER)}"'
    listener = f"listener.name.{SASL.lower()}"
    wanted = {
        f"{listener}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,GSSAPI",
        f"{listener}.gssapi.sasl.jaas.config": f'{module} {keytab} principal="{BROKER}@{REALM}";',
        "sasl.kerberos.service.name": "kafka",
        **(properties or {}),
    }
    # Java reads the path of krb5.conf from a system property, not from KRB5_CONFIG.
    before = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.security.krb5.conf={kdc.config_file}"
    try:
        broker = start(version, 1, wanted, security=security)
    finally:
        if before is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = before
    with broker:
        yield broker
