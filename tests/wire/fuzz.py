# ruff: noqa: S311  # random inputs, not secrets
"""Random bytes into every reader: `python -m tests.wire.fuzz --inputs 1000000 [--seed N]`.

Half of the inputs are messages with a few bytes changed, removed or inserted; the others are random. Each input is
either read or rejected with MalformedError, and its memory is bounded by its size.
"""

from __future__ import annotations

import argparse
import sys
import tracemalloc
from collections import Counter
from importlib import import_module
from random import Random
from resource import RUSAGE_SELF, getrusage
from time import perf_counter

from consumer_membership.wire.messages import LAYOUTS
from consumer_membership.wire.schema import layout_of
from consumer_membership.wire.serial import MalformedError, Read, reader
from consumer_membership.wire.versions import SUPPORTED
from tests.support.kio_entities import some_entity, written

#: Memory for each byte of a frame, which becomes at most an array element, an empty text or an empty structure.
BYTES_FOR_EACH = 400
#: Memory that a reader needs for any input.
BYTES_FOR_ANY = 20_000
#: The byte values at which lengths and signs change.
TURNING = bytes([0, 0, 0, 1, 2, 127, 128, 129, 255])
_MOST_BYTES = 200


class Fuzz:
    """Readers of all messages, and the valid frames from which inputs are made."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._readers: list[tuple[str, Read, list[bytes]]] = []
        for api, tables in LAYOUTS.items():
            for version in SUPPORTED[api]:
                module = import_module(f"kio.schema.{api.name.lower()}.v{version}")
                for table in tables:
                    layout, theirs = layout_of(table, version), getattr(module, table.name)
                    frames = [written(some_entity(theirs, self._chance)) for _ in range(8)]
                    self._readers.append((layout.name, reader(layout), frames))

    def run(self, inputs: int, *, measures: bool) -> Counter[str]:
        """Read this many inputs; return the number of "read" and of "refused" inputs.

        Raises:
            AssertionError: an input needed more memory than its size allows; checked with the slow `measures` only.
            Exception: a reader raised another exception than MalformedError; the note has the input.
        """
        came: Counter[str] = Counter()
        for _ in range(inputs):
            name, read, frames = self._chance.choice(self._readers)
            frame = self._changed(self._chance.choice(frames)) if self._chance.random() < 0.5 else self._nonsense()
            if measures:
                tracemalloc.start()
            try:
                value, end = read(frame, 0)
                came["read"] += 1
                assert value is not None
                assert end <= len(frame)
            except MalformedError:
                came["refused"] += 1
            except Exception as error:
                error.add_note(f"{name}: {frame.hex()}")
                raise
            if measures:
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert peak <= BYTES_FOR_ANY + BYTES_FOR_EACH * len(frame), f"{name}: {peak} bytes for {frame.hex()}"
        return came

    def _nonsense(self) -> bytes:
        chance = self._chance
        size = chance.randrange(_MOST_BYTES)
        return bytes(chance.choices(TURNING, k=size)) if chance.random() < 0.7 else chance.randbytes(size)

    def _changed(self, frame: bytes) -> bytes:
        chance, changed = self._chance, bytearray(frame)
        for _ in range(chance.choice([1, 1, 1, 2, 5])):
            place = chance.randrange(len(changed) + 1)
            match chance.randrange(3):
                case 0 if place < len(changed):
                    changed[place] = chance.choice(TURNING)
                case 1:
                    del changed[place : place + chance.choice([1, 2, 4])]
                case _:
                    changed[place:place] = chance.choices(TURNING, k=chance.choice([1, 2, 4]))
        return bytes(changed)


def main() -> int:
    """Read this many inputs and print the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    fuzz = Fuzz(chosen.seed)
    before, began = getrusage(RUSAGE_SELF).ru_maxrss, perf_counter()
    came = fuzz.run(chosen.inputs, measures=False)
    grown = getrusage(RUSAGE_SELF).ru_maxrss - before
    print(
        f"seed {chosen.seed}: {came['read']} read, {came['refused']} refused, nothing else, "
        f"in {perf_counter() - began:.0f} s; memory grew by {grown} kB at most"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
