"""A real broker that offers the API versions of an older one: its ApiVersions response is narrowed.

Clients then use the older versions, which the broker still reads. Its behavior is not older, so check what a test
relies on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from consumer_membership.wire.codec import SIZE_BYTES, decode, write_data
from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.versions import Api
from tests.support.proxy import Proxy

#: The number of the request, in front of an answer.
NUMBER_BYTES = 4
#: No test here needs them.
_NO_FEATURES: Mapping[str, object] = {"supported_features": (), "finalized_features": ()}


class OlderBroker(Proxy):
    """A proxy before one broker with one node, which offers only these API versions; a context manager."""

    def __init__(self, bootstrap: str, offers: Mapping[int, tuple[int, int]]) -> None:
        super().__init__(bootstrap)
        self._offers = offers

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
        # Clients ask for the versions first, and all of them in version 3 here.
        with suppress(OSError, asyncio.IncompleteReadError):
            size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
            writer.write(self._narrowed(await reader.readexactly(size)))
            await super()._answers(reader, writer, passes)

    def _narrowed(self, answer: bytes) -> bytes:
        entity = decode(Api.API_VERSIONS, 3, answer)
        offered = [
            {
                "api_key": one.api_key,
                "min_version": max(one.min_version, self._offers[one.api_key][0]),
                "max_version": min(one.max_version, self._offers[one.api_key][1]),
            }
            for one in entity.api_keys
            if one.api_key in self._offers
        ]
        assert all(one["min_version"] <= one["max_version"] for one in offered), "the broker has dropped a version"
        body = write_data(LAYOUTS[Api.API_VERSIONS][1], 3, {**vars(entity), "api_keys": offered, **_NO_FEATURES})
        data = answer[:NUMBER_BYTES] + body
        return len(data).to_bytes(SIZE_BYTES, "big") + data
