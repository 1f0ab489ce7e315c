"""A real Keycloak for the tests, on loopback and over TLS, with an imported realm whose clients authenticate by secret.

Maven fetches the distribution once, and it is built once (`kc.sh build`) for all runs of a user. Each server has its
own folder with the realm, its database and its log. It keeps its keys and accounts when it is stopped and started
again. It runs in production mode, with the `java` command of `kc.sh start --optimized` but without a shell, so that a
test stops the server's process itself.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from joserfc.jwk import RSAKey

from consumer_membership.devbroker.java import cache_folder
from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports
from tests.support.identity_provider import JWT_BEARER, client_key, key_file
from tests.support.secured import Materials
from tests.support.waiting import PATIENCE_S, PROCESS_S, wait_until_served

VERSION = "26.7.3"
REALM = "kafka"
AUDIENCE = "kafka"

#: Assertions of this issuer are accepted for the user that is linked to their subject.
_SIGNERS, _SIGNERS_ISSUER = "signers", "https://signers.test"
_SIGNER: Mapping[str, object] = MappingProxyType(
    {
        "username": "signer",
        "enabled": True,
        "email": "signer@identity.test",
        "emailVerified": True,
        "firstName": "Test",
        "lastName": "Signer",
        "federatedIdentities": [{"identityProvider": _SIGNERS, "userId": "signer", "userName": "signer"}],
    }
)
_FETCH_S, _BUILD_S, _RESPONSE_S = 300.0, 240.0, 10.0
_NEEDS = f"Keycloak {VERSION} is needed"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>keycloak-server</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.keycloak</groupId><artifactId>keycloak-quarkus-dist</artifactId><version>{version}</version>
    <type>zip</type>
    <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
  </dependency></dependencies>
</project>
"""
_THREAD_FACTORY = "io.quarkus.bootstrap.forkjoin.QuarkusForkJoinWorkerThreadFactory"
#: The options of kc.sh with its default heap limit, and with the garbage collector and compiler that start fastest.
_FLAGS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dfile.encoding=UTF-8",
    "-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
    f"-Djava.util.concurrent.ForkJoinPool.common.threadFactory={_THREAD_FACTORY}",
    "-Dpicocli.disable.closures=true",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.security=ALL-UNNAMED",
)
_MAIN_CLASS = "io.quarkus.bootstrap.runner.QuarkusEntryPoint"
# On Linux the server ends with the process that started it, even if the server is suspended (SIGSTOP). A separate
# process does this, because a function before exec (preexec_fn) is not safe in pytest, which has threads.
_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealmClient:
    """A client of the realm that gets tokens with client credentials, or also with assertions of the realm's signer.

    Attributes:
        client_id: The id of the client.
        secret: The secret of the client.
        lifetime_s: How long a token is valid, in seconds.
        audience: The audience that an audience mapper adds to its tokens; None: the client has no such mapper.
        has_assertions: Whether it may use assertions.
    """

    client_id: str
    secret: str = "provider-secret"  # noqa: S105 - of a server that runs only during the tests
    lifetime_s: int = 300
    audience: str | None = AUDIENCE
    has_assertions: bool = False

    def representation(self) -> dict[str, object]:
        """Return the client in the format of the realm's file."""
        mapper = {
            "name": "audience of the brokers",
            "protocol": "openid-connect",
            "protocolMapper": "oidc-audience-mapper",
            "config": {"included.custom.audience": self.audience, "access.token.claim": "true"},
        }
        return {
            "clientId": self.client_id,
            "secret": self.secret,
            "clientAuthenticatorType": "client-secret",
            "publicClient": False,
            "serviceAccountsEnabled": True,
            "standardFlowEnabled": False,
            "attributes": {
                "access.token.lifespan": str(self.lifetime_s),
                "oauth2.jwt.authorization.grant.enabled": str(self.has_assertions).lower(),
                "oauth2.jwt.authorization.grant.idp": _SIGNERS,
            },
            "protocolMappers": [] if self.audience is None else [mapper],
        }


class Keycloak:
    """The server. It may be stopped and started again, and suspended and resumed, always with the same port."""

    def __init__(self, folder: Path, made: Materials, clients: Sequence[RealmClient]) -> None:
        """Prepare a server in this empty folder, with the certificate of the run's brokers.

        Raises:
            RuntimeError: Keycloak cannot be fetched or built; the message has the reason and the fix.
        """
        (self.port,) = draw_ports(1)
        self._folder = folder
        self._ca_file = made.ca_file
        self._trust = ssl.create_default_context(cadata=made.ca_pem)
        self._process: subprocess.Popen[bytes] | None = None
        self.log_file = folder / "keycloak.log"
        imported = folder / "data" / "import"
        for needed in (imported, folder / "conf", folder / "providers", folder / "themes"):
            needed.mkdir(parents=True)
        (folder / "lib").symlink_to(_distribution() / "lib")
        (folder / "chain.pem").write_text(made.security.certificate_chain_pem)
        (folder / "key.pem").write_text(made.security.key_pem)
        realm = {
            "realm": REALM,
            "enabled": True,
            # Logs each issued token, and each request that is rejected.
            "eventsListeners": ["jboss-logging"],
            "clients": [client.representation() for client in clients],
            "identityProviders": [self._signers()],
            "users": [dict(_SIGNER)],
        }
        (imported / f"{REALM}-realm.json").write_text(json.dumps(realm))

    def client_config(
        self, client: RealmClient, *, secret: str | None = None, has_assertion: bool = False
    ) -> dict[str, object]:
        """Return the configuration of a Kafka client that gets its tokens as this client of the realm."""
        config: dict[str, object] = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.token_url,
            "sasl.oauthbearer.client.id": client.client_id,
            "sasl.oauthbearer.client.secret": secret or client.secret,
            "https.ca.location": self._ca_file,
        }
        if has_assertion:
            config |= {
                "sasl.oauthbearer.grant.type": JWT_BEARER,
                "sasl.oauthbearer.assertion.private.key.file": str(key_file(self._folder)),
                "sasl.oauthbearer.assertion.claim.sub": _SIGNER["username"],
                "sasl.oauthbearer.assertion.claim.iss": _SIGNERS_ISSUER,
                "sasl.oauthbearer.assertion.claim.aud": self.issuer,
                "sasl.oauthbearer.assertion.claim.jti.include": "true",
            }
        return config

    def _signers(self) -> dict[str, object]:
        """Return the trust in assertions of the signer, who has a key in the server's folder."""
        public = RSAKey.import_key(client_key(self._folder)).as_pem(private=False).decode()
        trust = {
            "issuer": _SIGNERS_ISSUER,
            "useJwksUrl": "false",
            "publicKeySignatureVerifier": public,
            "jwtAuthorizationGrantEnabled": "true",
            "jwtAuthorizationGrantAssertionSignatureAlg": "RS256",
        }
        return {"alias": _SIGNERS, "providerId": "jwt-authorization-grant", "enabled": True, "config": trust}

    @property
    def issuer(self) -> str:
        """The issuer of the realm's tokens; its host is in the server's certificate."""
        return f"https://localhost:{self.port}/realms/{REALM}"

    @property
    def token_url(self) -> str:
        return f"{self.issuer}/protocol/openid-connect/token"

    @property
    def jwks_url(self) -> str:
        return f"{self.issuer}/protocol/openid-connect/certs"

    def start(self) -> None:
        """Start the server, and return when the realm responds."""
        options = [
            "--import-realm",
            "--cache=local",
            f"--http-host={LOOPBACK}",
            f"--https-port={self.port}",
            f"--https-certificate-file={self._folder / 'chain.pem'}",
            f"--https-certificate-key-file={self._folder / 'key.pem'}",
            f"--hostname=https://localhost:{self.port}",
            "--spi-events-listener--jboss-logging--success-level=info",
        ]
        command = [sys.executable, "-I", "-S", "-c", _LAUNCH, *_command(self._folder, "start", "--optimized", *options)]
        with self.log_file.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=self._folder
            )
        wait_until_served("Keycloak", self._process, self.log_file, self._check_realm, OSError, PROCESS_S)

    def stop(self) -> None:
        """End the server if it runs, but keep its keys, clients and accounts."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            # A suspended server receives SIGTERM only when it continues.
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
                process.wait()

    def suspend(self) -> None:
        """Suspend the process (SIGSTOP): connections are accepted, but requests receive no response."""
        assert self._process is not None, "the server must run"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the suspended process continue."""
        assert self._process is not None, "the server must run"
        self._process.send_signal(signal.SIGCONT)

    def issued(self, client_id: str) -> int:
        """Return how many tokens the server has issued to this client with client credentials."""
        return self._events("CLIENT_LOGIN", client_id)

    def issued_for_assertions(self, client_id: str) -> int:
        """Return how many tokens the server has issued to this client for assertions."""
        return self._events("JWT_AUTHORIZATION_GRANT", client_id)

    def rejected(self, client_id: str) -> int:
        """Return how many token requests of this client the server has rejected."""
        return self._events("CLIENT_LOGIN_ERROR", client_id)

    def _events(self, kind: str, client_id: str) -> int:
        pattern = rf'type="{kind}".* clientId="{re.escape(client_id)}"'
        return len(re.findall(pattern, self.log_file.read_text(errors="replace")))

    def _check_realm(self) -> None:
        url = f"{self.issuer}/.well-known/openid-configuration"
        with urllib.request.urlopen(url, timeout=_RESPONSE_S, context=self._trust):  # noqa: S310 - loopback
            pass


@contextmanager
def running_keycloak(folder: Path, made: Materials, clients: Sequence[RealmClient]) -> Iterator[Keycloak]:
    """Run a server in this empty folder until the end of the block.

    Raises:
        RuntimeError: Keycloak cannot be fetched, built or started; the message has the reason and the fix.
    """
    server = Keycloak(folder, made, clients)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _command(home: Path, *arguments: str) -> list[str]:
    """Return the command line that kc.sh would execute for the server in this folder."""
    java = shutil.which("java")
    if java is None:
        raise RuntimeError(f"{_NEEDS}, and java is not on the PATH; install Java 17 or later")
    jar = home / "lib" / "quarkus-run.jar"
    return [java, *_FLAGS, f"-Dkc.home.dir={home}", "-cp", str(jar), _MAIN_CLASS, *arguments]


def _distribution() -> Path:
    """Return the folder of the built distribution; fetch and build it if it does not exist."""
    kept = cache_folder() / f"keycloak-{VERSION}"
    if not kept.exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise RuntimeError(
                f"{_NEEDS}, but it is not in {kept}, and mvn, which would fetch it, is not on the PATH; install Maven"
            )
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{kept.name}-", dir=kept.parent) as name:
            scratch = Path(name)
            pom = scratch / "pom.xml"
            pom.write_text(_POM.format(version=VERSION))
            fetch = [
                maven,
                "-q",
                "-B",
                "-f",
                str(pom),
                "dependency:unpack-dependencies",
                f"-DoutputDirectory={scratch}",
            ]
            fix = "check the network or the mirror in Maven's settings.xml"
            _run(fetch, f"{_NEEDS}: Maven could not fetch org.keycloak:keycloak-quarkus-dist; {fix}", _FETCH_S)
            fetched = scratch / kept.name
            # The kind of database is chosen in the build: here, a file in each server's folder.
            build = _command(fetched, "build", "--db=dev-file")
            _run(build, f"{_NEEDS}: its build failed; it needs Java 17 or later", _BUILD_S)
            with suppress(OSError):  # another process has built an equal distribution first
                fetched.rename(kept)
    return kept


def _run(command: Sequence[str], failure: str, limit_s: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{failure} (it did not end within {limit_s:g} s)") from error
    if done.returncode:
        raise RuntimeError(f"{failure}. Output:\n{done.stdout}{done.stderr}")
