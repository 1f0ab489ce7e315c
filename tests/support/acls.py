"""ACLs of a broker with an authorizer."""

from __future__ import annotations

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.support.waiting import PATIENCE_S, wait_until

#: All users may access a resource without rules. If a resource has rules, only the operations that a rule allows are
#: allowed.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def forbid(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    """Deny all users this operation on this resource; return the ACL, so that it can be deleted."""
    return _rule(bootstrap, kind, name, operation, AclPermissionType.DENY)


def allow(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    """Allow all users this operation on this resource, with the operations that it implies, and no other."""
    return _rule(bootstrap, kind, name, operation, AclPermissionType.ALLOW)


def restrict_cluster(bootstrap: str) -> None:
    """Allow only two operations on the cluster: ALTER, which includes DESCRIBE, and the brokers' CLUSTER_ACTION.

    One request creates both rules: after a request with one of them, the broker would reject the other one.
    """
    rules = [
        AclBinding(
            ResourceType.BROKER,
            "kafka-cluster",
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
    ]
    create_rules(bootstrap, rules)


def _rule(
    bootstrap: str, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType
) -> AclBinding:
    rule = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)
    create_rules(bootstrap, [rule])
    return rule


def create_rules(bootstrap: str, rules: list[AclBinding]) -> None:
    """Create these rules; return when the broker applies them, without waiting for rules that deny cluster operations.

    The controller responds first, and the broker reads the rules from the metadata log later.
    """
    # The client must not be deleted before its last future is done.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_acls(rules, request_timeout=PATIENCE_S).values():
        made.result()
    for rule in rules:
        if (rule.restype, rule.permission_type) == (ResourceType.BROKER, AclPermissionType.DENY):
            continue  # without DESCRIBE on the cluster, this client cannot describe rules
        wait_until(lambda rule=rule: _has(admin, rule), f"the rule {rule}")  # type: ignore[misc]  # a default


def delete_rule(bootstrap: str, rule: AclBinding) -> None:
    """Delete this rule and return when the broker no longer applies it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    matching = _filter_of(rule)
    admin.delete_acls([matching], request_timeout=PATIENCE_S)[matching].result()
    wait_until(lambda: not _has(admin, rule), f"the deletion of the rule {rule}")


def _has(admin: AdminClient, rule: AclBinding) -> bool:
    """Return whether the broker's authorizer has this rule."""
    return rule in admin.describe_acls(_filter_of(rule), request_timeout=PATIENCE_S).result()


def _filter_of(rule: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )
