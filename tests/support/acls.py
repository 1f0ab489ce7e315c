"""ACLs of a broker that has an authorizer."""

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
    """Deny all users this operation on this resource; return the ACL, so that it can be deleted."""
    return _rule(bootstrap, kind, name, operation, AclPermissionType.DENY)


def allow(bootstrap: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    """Allow all users this operation on this resource, with the operations that it implies, and no other."""
    return _rule(bootstrap, kind, name, operation, AclPermissionType.ALLOW)


def _rule(
    bootstrap: str, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType
) -> AclBinding:
    rule = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_acls([rule], request_timeout=20)[rule].result()
    return rule
