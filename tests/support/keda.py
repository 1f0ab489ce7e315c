"""The manifests of `examples/keda`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.kubernetes_schemas import resources

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = EXAMPLES / "keda"
SCALED_OBJECTS = sorted(EXAMPLE.glob("scaledobject-*.yaml"))


def scaled_object(path: Path) -> dict[str, Any]:
    """Return the ScaledObject in this file."""
    (found,) = resources(path)
    return found


def deployment() -> dict[str, Any]:
    """Return the Deployment that is scaled."""
    (found,) = (one for one in resources(EXAMPLE / "deployment.yaml") if one["kind"] == "Deployment")
    return found


def environment() -> dict[str, str]:
    """Return the environment variables of the pods' container."""
    (container,) = deployment()["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"]}
