"""The hosts of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.clusters import Ground
from tests.spark.hosts.site import Site, a_site

PARTITIONS = 4


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise the timeouts: a site takes half a minute to start, and networks are cut for up to a minute."""
    for item in items:
        if "site" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The site of a test file; each test repairs what it has broken."""
    with a_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(autouse=True)
def at_the_desk(site: Site) -> Iterator[None]:
    """Move the test's own thread to a host, because no process outside the network reaches the hosts."""
    with site.desk.entered():
        yield


@pytest.fixture
def ground(site: Site) -> Ground:
    """A topic with 2,000 records, and a group."""
    return Ground(site.kafka, PARTITIONS, 2000)
