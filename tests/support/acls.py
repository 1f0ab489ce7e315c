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

#: A resource without rules is open to everyone; a resource with a rule denies every operation that no rule allows.
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


def close_cluster(bootstrap: str) -> None:
    """Deny every operation on the cluster but ALTER, which includes DESCRIBE, and what the brokers themselves need.

    Both rules are created at once: with one of them alone the broker refuses the other one.
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
    # Until its last future is done, the client has to live.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_acls(rules, request_timeout=20).values():
        made.result()


def _rule(
    bootstrap: str, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType
) -> AclBinding:
    rule = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_acls([rule], request_timeout=20)[rule].result()
    return rule
