"""Validation of example resources against the Kubernetes schemas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

#: The oldest release of Kubernetes that is maintained, and the newest that the installed kubernetes-validate supports.
RELEASES = ("1.33", "1.37")
#: The error for an invalid resource.
RefusedResource = kubernetes_validate.ValidationError


def check(resource: Mapping[str, Any]) -> None:
    """Validate a resource against the Kubernetes schemas; an unknown field is an error."""
    for release in RELEASES:
        kubernetes_validate.validate(resource, release, strict=True)


def resources(*files: Path) -> list[dict[str, Any]]:
    """Return all resources in these files."""
    return [one for file in files for one in yaml.safe_load_all(file.read_text())]
