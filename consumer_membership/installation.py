"""The command that adds one of the package's extras to this installation, for messages about missing libraries.

Nothing that a plain consumer imports may import this module: `importlib.metadata` is slow to import.
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
    """The command that adds this extra to the installed package (by default: to the one that runs).

    No package index has the package, so the command names the place that it was installed from: a checkout, a wheel or
    a repository (PEP 610, direct_url.json). Where that place is unknown, or a file that is gone, it names the libraries
    of the extra.
    """
    try:
        installed = installed or distribution(_NAME)
    except PackageNotFoundError:
        # The sources are on the path, without an installation.
        return f"pip install {shlex.quote(f'{Path(__file__).parents[1]}[{extra}]')}"
    source = _source(installed, extra)
    return f"pip install {source}" if source is not None else _libraries(installed, extra)


def _source(installed: Distribution, extra: str) -> str | None:
    """What pip is given to install the package again with this extra."""
    told = json.loads(installed.read_text("direct_url.json") or "{}")
    url = told.get("url", "")
    if not url.startswith("file:"):
        vcs = told.get("vcs_info")
        address = url if vcs is None else f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
        return shlex.quote(f"{_NAME}[{extra}] @ {address}") if url else None
    path = url2pathname(urlsplit(url).path)
    if not Path(path).exists():
        return None
    editable = "-e " if told.get("dir_info", {}).get("editable") else ""
    return editable + shlex.quote(f"{path}[{extra}]")


def _libraries(installed: Distribution, extra: str) -> str:
    marked = (requirement.partition(";") for requirement in installed.requires or ())
    of_extra = re.compile(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""")
    return shlex.join(["pip", "install", *(name.strip() for name, _, marker in marked if of_extra.search(marker))])
