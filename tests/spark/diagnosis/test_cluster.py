"""The findings about brokers, topics and the group, one rule per test."""

from __future__ import annotations

from dataclasses import replace

from consumer_membership.admin import MemberDescription
from consumer_membership.config import ConnectionSettings, SaslMechanism, SaslSettings, TlsSettings
from consumer_membership.config.settings import KerberosSettings
from consumer_membership.errors import TransportError
from consumer_membership.runtime.network.group_client import BrokerRefusal
from consumer_membership.spark.diagnosis.cluster import (
    ClusterFacts,
    GroupFacts,
    TopicFacts,
    cluster_findings,
    files_of_connections,
    member_principal,
)
from consumer_membership.spark.diagnosis.findings import Finding, Severity
from consumer_membership.types import BrokerAddress, BrokerError, GroupProtocol
from tests.admin.builders import group
from tests.spark.diagnosis.builders import one, subjects
from tests.support.identity_provider import JWT_BEARER

ERROR, WARNING, OK = Severity.ERROR, Severity.WARNING, Severity.OK
BOTH = (GroupProtocol.CONSUMER, GroupProtocol.CLASSIC)
BROKER = ("kafka", 9092)
TOPIC = TopicFacts(name="orders", partitions=6, operations=frozenset({"READ", "DESCRIBE", "WRITE"}))


def refusal(name: str, message: str = "") -> BrokerRefusal:
    """A coordinator's error in place of a description of the group."""
    return BrokerRefusal(BrokerError(code=1, name=name, message=message), retriable=False)


GROUP = GroupFacts(name="g", may_read=True, answer=refusal("GROUP_ID_NOT_FOUND"))
CLUSTER = ClusterFacts(
    bootstrap=(BROKER,),
    wanted=BOTH,
    brokers=(BrokerAddress(node_id=1, host="kafka", port=9092),),
    takes_consumer_protocol=True,
    topics=(TOPIC,),
    group=GROUP,
)


def of_cluster(instances: int | None = 4, pipeline: str = "g", **facts: object) -> tuple[Finding, ...]:
    """The findings about this cluster."""
    return tuple(cluster_findings(replace(CLUSTER, **facts), instances, pipeline))  # type: ignore[arg-type]


def member(instance_id: str | None, epoch: int | None = 3) -> MemberDescription:
    """A member of the group."""
    return MemberDescription(
        member_id=f"member of {instance_id}",
        instance_id=instance_id,
        rack_id=None,
        client_id=f"client of {instance_id}",
        host="10.0.0.7",
        epoch=epoch,
        protocol=GroupProtocol.CONSUMER,
        topics=frozenset({"orders"}),
        pattern=None,
        assignment=frozenset(),
        target=None,
    )


def test_healthy_cluster_has_only_ok_findings() -> None:
    """A healthy cluster has only OK findings, whether or not the group exists."""
    assert {finding.severity for finding in of_cluster()} == {OK}
    assert "does not exist yet" in one(of_cluster(), "group g").found
    known = replace(GROUP, answer=group(member(None)))
    assert one(of_cluster(group=known), "group g").found == "consumer protocol, 1 members"


def test_unreachable_brokers_are_one_error() -> None:
    """Unreachable brokers give one error and no findings about topics and group."""
    (found,) = of_cluster(failure="connection refused")
    assert (found.severity, found.subject) == (ERROR, "brokers")
    assert "kafka:9092" in found.found
    assert "bootstrap.servers" in found.remedy


def test_brokers_without_the_consumer_protocol_are_a_warning_or_an_error() -> None:
    """It is a warning if members fall back to the classic protocol, and an error if the configuration forbids this."""
    found = one(of_cluster(takes_consumer_protocol=False), "group.protocol")
    assert (found.severity, "group.version=1" in found.remedy) == (WARNING, True)
    only = of_cluster(takes_consumer_protocol=False, wanted=(GroupProtocol.CONSUMER,))
    assert one(only, "group.protocol").severity is ERROR
    classic = of_cluster(takes_consumer_protocol=False, wanted=(GroupProtocol.CLASSIC,))
    assert one(classic, "group.protocol").severity is OK
    assert one(of_cluster(takes_consumer_protocol=None), "group.protocol").severity is WARNING


def test_topic_that_is_missing_or_forbidden_is_an_error_with_the_command() -> None:
    """The error has Kafka's name for the problem and the command for an administrator."""
    found = one(of_cluster(topics=(TopicFacts(name="orders", error="UNKNOWN_TOPIC_OR_PART"),)), "topic orders")
    assert (found.severity, found.found) == (ERROR, "does not exist")
    assert "kafka-topics.sh --bootstrap-server kafka:9092 --create --topic orders" in found.remedy
    hidden = TopicFacts(name="orders", error="TOPIC_AUTHORIZATION_FAILED")
    assert one(of_cluster(topics=(hidden,)), "topic orders").found.startswith("DESCRIBE not allowed")
    found = one(of_cluster(topics=(replace(TOPIC, operations=frozenset({"DESCRIBE"})),)), "topic orders")
    assert (found.severity, found.found) == (ERROR, "READ not allowed")
    assert (
        "kafka-acls.sh --bootstrap-server kafka:9092 --add --allow-principal User:ANONYMOUS "
        "--operation READ --operation DESCRIBE --topic orders;"
    ) in found.remedy
    assert one(of_cluster(topics=(TopicFacts(name="orders", error="_TIMED_OUT"),)), "topic orders").severity is WARNING
    assert one(of_cluster(topics=(TopicFacts(name="orders", error="_STATE"),)), "topic orders").severity is ERROR
    # If brokers do not report the allowed operations, no missing right is assumed.
    assert one(of_cluster(topics=(replace(TOPIC, operations=None),)), "topic orders").severity is OK


def test_acl_command_names_the_principal_of_the_members() -> None:
    """The command names the SASL user, or the owner of the client certificate."""
    hidden = TopicFacts(name="orders", error="TOPIC_AUTHORIZATION_FAILED")
    found = one(of_cluster(topics=(hidden,), principal="User:alice"), "topic orders")
    assert "--allow-principal User:alice --operation READ" in found.remedy


def test_principal_is_that_of_the_login_with_kafkas_default_rules() -> None:
    """It is the SASL user, the first part of a Kerberos principal, or a text that names the key of the certificate."""
    servers = ConnectionSettings(bootstrap_servers=(BROKER,))
    kerberos = KerberosSettings(service="kafka", principal="orders/web.example@EXAMPLE.COM")
    sasl = SaslSettings(mechanism=SaslMechanism.GSSAPI, kerberos=kerberos)
    for expected, settings in {
        "User:ANONYMOUS": servers,
        "User:<the subject of ssl.certificate.location>": replace(servers, tls=TlsSettings(certificate_pem="PEM")),
        "User:<the subject of the certificate in ssl.keystore.location>": replace(
            servers, tls=TlsSettings(keystore_location="/k.p12")
        ),
        "User:alice": replace(servers, sasl=SaslSettings(mechanism=SaslMechanism.PLAIN, username="alice")),
        "User:orders": replace(servers, sasl=sasl),
        "User:<the principal of the ticket cache>": replace(
            servers, sasl=replace(sasl, kerberos=KerberosSettings(service="kafka"))
        ),
    }.items():
        assert member_principal(settings) == expected


def test_files_of_connections_are_the_paths_that_each_host_needs() -> None:
    """Keystores and keytabs are such files; the CA `probe` is none, because each host searches for its own file."""
    kerberos = KerberosSettings(service="kafka", keytab="/k.keytab", principal="orders")
    settings = ConnectionSettings(
        bootstrap_servers=(BROKER,),
        tls=TlsSettings(ca_location="probe", keystore_location="/k.p12"),
        sasl=SaslSettings(mechanism=SaslMechanism.GSSAPI, kerberos=kerberos),
    )
    expected = {"ssl.keystore.location": "/k.p12", "sasl.kerberos.keytab": "/k.keytab"}
    assert files_of_connections(settings, {}) == expected
    named = replace(settings, tls=TlsSettings(ca_location="/ca.pem"), sasl=None)
    assert files_of_connections(named, {}) == {"ssl.ca.location": "/ca.pem"}


def test_files_of_connections_include_those_of_token_requests() -> None:
    """Each task requests its own tokens, with the files of the grant and the authority of the token endpoint."""
    sasl = SaslSettings(mechanism=SaslMechanism.OAUTHBEARER)
    settings = ConnectionSettings(bootstrap_servers=(BROKER,), sasl=sasl)
    files = {
        "sasl.oauthbearer.assertion.private.key.file": "/key.pem",
        "sasl.oauthbearer.assertion.jwt.template.file": "/template.json",
        "https.ca.location": "/ca.pem",
    }
    config: dict[str, object] = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.grant.type": JWT_BEARER, **files}
    assert files_of_connections(settings, config) == files
    finished = {**config, "sasl.oauthbearer.assertion.file": "/assertion.jwt", "https.ca.location": "probe"}
    assert "https.ca.location" not in files_of_connections(settings, finished)
    assert files_of_connections(settings, finished)["sasl.oauthbearer.assertion.file"] == "/assertion.jwt"
    assert files_of_connections(settings, {**config, "oauth_cb": print}) == {}
    assert files_of_connections(replace(settings, sasl=None), config) == {}


def test_more_instances_than_partitions_is_a_warning() -> None:
    """Instances beyond the partitions of all topics hold a slot and idle."""
    found = one(of_cluster(8), "instances")
    assert (found.severity, found.found) == (WARNING, "8 for 6 partitions")
    assert "2 of them are idle" in found.why
    assert one(of_cluster(8, topics=(TOPIC, replace(TOPIC, name="more"))), "instances").severity is OK
    unknown = of_cluster(8, topics=(TOPIC, TopicFacts(name="hidden", error="TOPIC_AUTHORIZATION_FAILED")))
    assert [finding for finding in unknown if finding.subject == "instances"] == []


def test_missing_rights_on_the_group_are_errors_with_the_command() -> None:
    """If both rights are missing, both are named."""
    found = one(of_cluster(group=replace(GROUP, may_read=False)), "group g")
    assert (found.severity, found.found) == (ERROR, "READ not allowed")
    assert "--operation READ --operation DESCRIBE --group g;" in found.remedy
    neither = replace(GROUP, may_read=False, answer=refusal("GROUP_AUTHORIZATION_FAILED"))
    assert one(of_cluster(group=neither), "group g").found == "READ and DESCRIBE not allowed"


def test_group_of_another_type_is_an_error_and_an_undescribed_group_a_warning() -> None:
    """A share group cannot have consumer members, so it is an error."""
    share = refusal("GROUP_ID_NOT_FOUND", "Group g is not a classic group.")
    assert one(of_cluster(group=replace(GROUP, answer=share)), "group g").severity is ERROR
    silent = one(of_cluster(group=replace(GROUP, answer=TransportError("not ready"))), "group g")
    assert (silent.severity, silent.found) == (WARNING, "not described: not ready")
    topics = one(of_cluster(group=replace(GROUP, answer=refusal("TOPIC_AUTHORIZATION_FAILED"))), "group g")
    assert topics.found == "not described: DESCRIBE is not allowed on topics of its members"


def test_running_copy_of_the_pipeline_is_a_warning() -> None:
    """A live member with an instance id of the pipeline is named with client and host."""
    held = replace(
        GROUP,
        answer=group(
            member("g-0"),
            member("g-11"),
            member("g-1", epoch=-2),
            member("other-0"),
            member(None),
            member("g-x"),
        ),
    )
    found = one(of_cluster(12, group=held), "pipeline g")
    assert found.severity is WARNING
    assert found.found == (
        "2 of its instance ids are held: g-0 by client client of g-0 on 10.0.0.7, "
        "g-11 by client client of g-11 on 10.0.0.7"
    )
    assert one(of_cluster(2, group=held), "pipeline g").found.startswith("1 of its instance ids")
    assert one(of_cluster(2, "other", group=held), "pipeline other").found.startswith("1 of its instance ids")
    assert subjects(of_cluster(2, "third", group=held), WARNING) == []
    many = replace(GROUP, answer=group(*(member(f"g-{number}") for number in range(7))))
    assert one(of_cluster(None, group=many), "pipeline g").found.endswith("10.0.0.7, and 2 more")
