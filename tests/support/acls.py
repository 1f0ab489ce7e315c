"""Rules of a broker that has an authorizer."""

from __future__ import annotations

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

#: Whatever no rule forbids is allowed, so that a test forbids exactly one thing.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def forbid(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    """Deny everybody this operation on this resource; the rule, to be able to take it back."""
    return _rule(bootstrap, kind, name, operation, AclPermissionType.DENY)


def allow(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    """Allow everybody this operation on this resource, and what it implies, and nothing else."""
    return _rule(bootstrap, kind, name, operation, AclPermissionType.ALLOW)


def _rule(
    bootstrap: str, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType
) -> AclBinding:
    rule = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_acls([rule], request_timeout=20)[rule].result()
    return rule
