"""Count the records of each key, with state: `app_quixstreams.py SERVERS TOPIC GROUP OUTPUT GUARANTEE STATE`."""

from __future__ import annotations

import sys

from quixstreams import Application, State


def main(servers: str, topic: str, group: str, output: str, guarantee: str, folder: str) -> None:
    """Run until a signal ends the program."""
    app = Application(
        broker_address=servers,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee=guarantee,
        commit_interval=0.5,
        state_dir=folder,
        loglevel="WARNING",
    )
    numbers = app.topic(topic, key_deserializer="str", value_deserializer="str")
    counted = app.topic(output, key_serializer="str", value_serializer="str")
    frame = app.dataframe(numbers).apply(count, stateful=True).update(tell)
    frame.to_topic(counted)
    app.run()


def count(number: str, state: State) -> str:
    """Return the record with its key's count so far."""
    seen = state.get("seen", 0) + 1
    state.set("seen", seen)
    return f"{number} {seen}"


def tell(value: str) -> None:
    """Print the record."""
    print("record", value.split(maxsplit=1)[0], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
