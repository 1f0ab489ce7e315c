"""How an extra is added to an installation: no index has the package, so no text may name it to pip."""

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
    """An installation as pip writes it, from this place."""
    (folder / "METADATA").write_text(METADATA)
    if direct_url is not None:
        (folder / "direct_url.json").write_text(json.dumps(direct_url))
    return PathDistribution(folder)


@pytest.mark.parametrize(
    ("is_editable", "flag"), [(True, "-e "), (False, "")], ids=["editable checkout", "copied checkout"]
)
def test_install_command_names_the_checkout_that_was_installed(tmp_path: Path, *, is_editable: bool, flag: str) -> None:
    """The path is quoted for a shell, and an editable installation stays editable."""
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    of = installed(tmp_path, {"url": checkout.as_uri(), "dir_info": {"editable": is_editable}})
    assert install_command("spark", of) == f"pip install {flag}'{checkout}[spark]'"


def test_install_command_names_the_wheel_that_was_installed(tmp_path: Path) -> None:
    """A file with an extra behind it is what pip takes."""
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
def test_install_command_names_the_address_that_was_installed(tmp_path: Path, direct_url: object, source: str) -> None:
    """A direct reference (PEP 508), with the commit of a repository."""
    assert install_command("s3", installed(tmp_path, direct_url)) == f"pip install 'consumer-membership[s3] @ {source}'"


@pytest.mark.parametrize("direct_url", [None, {"url": "file:///nowhere/it.whl", "archive_info": {}}])
def test_install_command_names_the_libraries_where_the_source_is_unknown_or_gone(
    tmp_path: Path, direct_url: object
) -> None:
    """Of this extra only, without markers."""
    assert install_command("spark", installed(tmp_path, direct_url)) == "pip install 'pandas>=2.2' 'pyarrow>=15'"


def test_install_command_of_this_installation_names_a_place_that_is_there() -> None:
    """The tests run from a checkout."""
    *_, target = shlex.split(install_command("metrics"))
    assert (Path(target.removesuffix("[metrics]")) / "pyproject.toml").exists()


def test_version_is_the_one_that_is_built() -> None:
    """`pyproject.toml` has it for the wheel."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__


def test_no_text_has_users_install_a_name_that_no_index_has() -> None:
    """Texts of the package, examples and documents install a path, a wheel or an address, or call `install_command`.

    Delete this test when an index has the package.
    """
    by_name = re.compile(r"consumer-membership\[|\bpip3? install\b[^&|;]*[\s'\"]consumer[-_]membership(?![-\w.])")
    texts = [ROOT / "README.md", *(ROOT / "consumer_membership").rglob("*"), *(ROOT / "examples").rglob("*")]
    found = {
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in texts
        if path.is_file() and path.suffix not in {".pyc", ".whl"} and path.name != "installation.py"
        for line in path.read_text().splitlines()
        if by_name.search(line)
    }
    assert found == set()


@pytest.mark.parametrize(
    ("library", "taken", "refused"), [("pandas", "2.2.0", "3.0.0"), ("pyarrow", "18.0.0", "17.0.0")]
)
def test_extra_spark_has_libraries_that_every_pyspark_takes_without_a_warning(
    library: str, taken: str, refused: str
) -> None:
    """Pyspark 4.3.0 needs pandas 2.2 and pyarrow 18, and warns of pandas 3; pyspark 4.0.0 takes all of these."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    (found,) = (each for each in map(Requirement, extra) if each.name == library)
    assert found.specifier.contains(taken)
    assert not found.specifier.contains(refused)
