"""The command that adds an extra to this installation, for messages about missing libraries.

Modules that every consumer imports must not import this module, because `importlib.metadata` is slow to import.
"""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

_NAME = "consumer-membership"


def install_command(extra: str, installed: Distribution | None = None) -> str:
    """Return the command that adds this extra to an installation; `installed` None: to the running one.

    No package index has the package, so the command names the source of the installation: a checkout, a wheel or a
    repository (PEP 610, direct_url.json). If the source is unknown or deleted, the command names the libraries of the
    extra instead.
    """
    try:
        installed = installed or distribution(_NAME)
    except PackageNotFoundError:
        # The checkout is on the import path without an installation.
        return f"pip install {shlex.quote(f'{Path(__file__).parents[1]}[{extra}]')}"
    source = _source(installed, extra)
    return f"pip install {source}" if source is not None else _libraries(installed, extra)


def _source(installed: Distribution, extra: str) -> str | None:
    """Return pip's argument that installs the package again with this extra; None if the source is not available."""
    direct_url = json.loads(installed.read_text("direct_url.json") or "{}")
    url = direct_url.get("url", "")
    if not url.startswith("file:"):
        vcs = direct_url.get("vcs_info")
        address = url if vcs is None else f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
        return shlex.quote(f"{_NAME}[{extra}] @ {address}") if url else None
    path = url2pathname(urlsplit(url).path)
    if not Path(path).exists():
        return None
    editable = "-e " if direct_url.get("dir_info", {}).get("editable") else ""
    return editable + shlex.quote(f"{path}[{extra}]")


def _libraries(installed: Distribution, extra: str) -> str:
    """Return the command that installs the libraries of this extra."""
    marked = (requirement.partition(";") for requirement in installed.requires or ())
    of_extra = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    return shlex.join(["pip", "install", *(name.strip() for name, _, marker in marked if of_extra.search(marker))])
