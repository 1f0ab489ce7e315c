"""The command that adds an extra to an installation; the package is in no index, so pip cannot find it by its name."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from consumer_membership.installation import install_command
from consumer_membership.version import __version__
from tests.support.documents import ROOT

METADATA = """Metadata-Version: 2.4
Name: consumer-membership
Version: 0.1.0
Requires-Dist: tenacity<10,>=9.2
Provides-Extra: spark
Requires-Dist: pandas>=2.2; extra == 'spark'
Requires-Dist: pyarrow>=15; extra == "spark"
Provides-Extra: s3
Requires-Dist: obstore>=0.9; extra == 's3'
"""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
GIT = {"url": "https://host/owner/repository", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}
WHEEL = {"url": "https://host/consumer_membership-0.1.0-py3-none-any.whl", "archive_info": {}}


def installed(folder: Path, direct_url: object = None) -> PathDistribution:
    """Return an installation from this source, as pip writes it."""
    (folder / "METADATA").write_text(METADATA)
    if direct_url is not None:
        (folder / "direct_url.json").write_text(json.dumps(direct_url))
    return PathDistribution(folder)


@pytest.mark.parametrize(
    ("is_editable", "flag"), [(True, "-e "), (False, "")], ids=["editable checkout", "copied checkout"]
)
def test_install_command_names_the_installed_checkout(tmp_path: Path, *, is_editable: bool, flag: str) -> None:
    """The path is quoted for a shell, and an editable installation stays editable."""
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    of = installed(tmp_path, {"url": checkout.as_uri(), "dir_info": {"editable": is_editable}})
    assert install_command("spark", of) == f"pip install {flag}'{checkout}[spark]'"


def test_install_command_names_the_installed_wheel(tmp_path: Path) -> None:
    """The command appends the extra to the wheel's path, as pip accepts it."""
    wheel = tmp_path / "consumer_membership-0.1.0-py3-none-any.whl"
    wheel.touch()
    of = installed(tmp_path, {"url": wheel.as_uri(), "archive_info": {}})
    assert install_command("spark", of) == f"pip install '{wheel}[spark]'"


@pytest.mark.parametrize(
    ("direct_url", "source"),
    [
        (GIT, f"git+https://host/owner/repository@{COMMIT}"),
        (WHEEL, "https://host/consumer_membership-0.1.0-py3-none-any.whl"),
    ],
    ids=["repository", "address of a wheel"],
)
def test_install_command_names_the_installed_url(tmp_path: Path, direct_url: object, source: str) -> None:
    """The command has a direct reference (PEP 508), with the commit of a repository."""
    assert install_command("s3", installed(tmp_path, direct_url)) == f"pip install 'consumer-membership[s3] @ {source}'"


@pytest.mark.parametrize("direct_url", [None, {"url": "file:///nowhere/it.whl", "archive_info": {}}])
def test_install_command_names_the_libraries_if_the_source_is_unknown_or_gone(
    tmp_path: Path, direct_url: object
) -> None:
    """The command names the libraries of this extra only, without environment markers."""
    assert install_command("spark", installed(tmp_path, direct_url)) == "pip install 'pandas>=2.2' 'pyarrow>=15'"


def test_install_command_of_this_installation_names_an_existing_checkout() -> None:
    """The tests run from a checkout, so the command names its path."""
    *_, target = shlex.split(install_command("metrics"))
    assert (Path(target.removesuffix("[metrics]")) / "pyproject.toml").exists()


def test_pyproject_reads_the_version_from_the_package() -> None:
    """The version is in one place: the build reads it from `consumer_membership/version.py`."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in pyproject["project"]["dynamic"]
    source = ROOT / pyproject["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{__version__}"' in source.read_text().splitlines()


def test_extra_all_names_every_other_extra() -> None:
    """The extra `all` includes each other extra except `kerberos`, whose library has to be compiled."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (every,) = map(Requirement, extras.pop("all"))
    assert every.extras == extras.keys() - {"kerberos"}


def test_texts_never_install_the_package_by_name_alone() -> None:
    """Texts of the package, examples and documents install a path, a wheel or a URL, or call `install_command`.

    Delete this test when an index has the package.
    """
    with_extra = r"(?<!/)consumer-membership\[[\w,-]*\](?! @ )"
    by_name = re.compile(rf"{with_extra}|\bpip3? install\b[^&|;]*[\s'\"]consumer[-_]membership(?![-\w.\[])")
    folders = (ROOT / name for name in ("consumer_membership", "examples", "docs"))
    texts = [ROOT / "README.md", *(path for folder in folders for path in folder.rglob("*"))]
    found = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in texts
        if path.is_file() and path.suffix not in {".pyc", ".whl", ".png"} and path.name != "installation.py"
        for line in path.read_text().splitlines()
        if by_name.search(line)
    }
    assert found == set()


@pytest.mark.parametrize(
    ("library", "taken", "refused"), [("pandas", "2.2.0", "3.0.0"), ("pyarrow", "18.0.0", "17.0.0")]
)
def test_spark_extra_allows_only_library_versions_that_every_pyspark_accepts(
    library: str, taken: str, refused: str
) -> None:
    """Pyspark 4.3.0 needs pandas 2.2 and pyarrow 18 and warns about pandas 3; pyspark 4.0.0 accepts all of these."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    (found,) = (each for each in map(Requirement, extra) if each.name == library)
    assert found.specifier.contains(taken)
    assert not found.specifier.contains(refused)
