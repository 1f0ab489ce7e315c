"""A real broker that supports only the API versions of an older broker: a proxy changes its ApiVersions response.

Clients then use the older versions, which the broker still accepts. But the broker behaves like its own version, so
check that this does not matter to your test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from consumer_membership.wire.codec import SIZE_BYTES, decode, write_data
from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.versions import Api
from tests.support.proxy import Proxy

#: The size of the correlation id at the start of a response.
NUMBER_BYTES = 4
#: The tests need no features.
_NO_FEATURES: Mapping[str, object] = {"supported_features": (), "finalized_features": ()}


class OlderBroker(Proxy):
    """A proxy in front of a broker with one node, which offers only these API versions; a context manager."""

    def __init__(self, bootstrap: str, offers: Mapping[int, tuple[int, int]]) -> None:
        super().__init__(bootstrap)
        self._offers = offers

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
        # The first request of a client is ApiVersions; all clients of these tests send version 3.
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
        assert all(one["min_version"] <= one["max_version"] for one in offered), (
            "the broker no longer supports a version"
        )
        body = write_data(LAYOUTS[Api.API_VERSIONS][1], 3, {**vars(entity), "api_keys": offered, **_NO_FEATURES})
        data = answer[:NUMBER_BYTES] + body
        return len(data).to_bytes(SIZE_BYTES, "big") + data
