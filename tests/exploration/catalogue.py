"""All the worlds that are explored, of both protocols, and the rules that there are."""

from __future__ import annotations

from collections.abc import Mapping

from tests.exploration.classic.worlds import CLASSIC_WORLDS
from tests.exploration.consumer.worlds import CONSUMER_WORLDS
from tests.exploration.consumer.worlds import RULES as VERSIONS
from tests.exploration.worlds import World

WORLDS: Mapping[str, World] = {**CONSUMER_WORLDS, **CLASSIC_WORLDS}
RULES = tuple(dict.fromkeys((*VERSIONS, *(rules for world in WORLDS.values() for rules in world.rules))))
