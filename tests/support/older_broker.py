"""A real broker that offers less than it could: what it answers to ApiVersions is narrowed to what an older one offers.

Clients then speak with it as with the older one, in bytes that it still reads. What it does is not older: see what a
test relies on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from consumer_membership.wire.codec import decode
from consumer_membership.wire.versions import Api
from tests.support.proxy import Proxy
from tests.support.scripted_broker import SIZE_BYTES, frame


class OlderBroker(Proxy):
    """A proxy in front of one broker of one node, which offers these versions and no other API; a context manager."""

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
        offered = tuple(
            replace(
                one,
                min_version=max(one.min_version, self._offers[one.api_key][0]),
                max_version=min(one.max_version, self._offers[one.api_key][1]),
            )
            for one in entity.api_keys
            if one.api_key in self._offers
        )
        assert all(one.min_version <= one.max_version for one in offered), "the broker behind has dropped a version"
        return frame(replace(entity, api_keys=offered), int.from_bytes(answer[:4], "big"))
