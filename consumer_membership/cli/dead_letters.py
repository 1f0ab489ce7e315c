"""The command `dead-letters`: list, show and replay the records of a dead-letter topic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from consumer_membership.admin.group_admin import DEFAULT_TIMEOUT_S
from consumer_membership.cli.consume import escaped, for_json, time_text
from consumer_membership.cli.groups import DONE, REFUSED, run_query, table
from consumer_membership.errors import MembershipError
from consumer_membership.processing.dead_letter_headers import DeadLetter
from consumer_membership.processing.dead_letter_replay import DeadLetterReplay, ReplayReport
from consumer_membership.processing.dead_letter_topic import DeadLetterTopic, LetterSelection
from consumer_membership.text import excerpt

_COMMAND = "dead-letters"
_NUMBERS = frozenset({"PARTITION", "OFFSET", "ATTEMPTS", "REPLAYS", "RECORDS"})
#: A longer cell shifts only the rest of its own row.
_WIDEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterOptions:
    """The topic, the action and its options; `group` and `to` are those of a replay."""

    topic: str
    action: str
    config: Mapping[str, object]
    selection: LetterSelection = field(default_factory=LetterSelection)
    group: str | None = None
    to: str | None = None
    is_dry_run: bool = False
    is_json: bool = False
    timeout_s: float | None = None

    def source(self) -> DeadLetterTopic:
        """Return a reader of the topic."""
        return DeadLetterTopic(
            self.config,
            self.topic,
            group=self.replay_group,
            timeout_s=DEFAULT_TIMEOUT_S if self.timeout_s is None else self.timeout_s,
        )

    @property
    def replay_group(self) -> str:
        """The group of a replay."""
        return self.group or f"{self.topic}.replay"


def dead_letters(options: DeadLetterOptions, out: TextIO, err: TextIO) -> int:
    """Run the action, print its result to `out`, and return the exit code; a failed request is one line on `err`."""

    def run() -> tuple[Iterable[str], int]:
        if options.action == "replay":
            return _replay(options, err)
        return _selected(options), DONE

    return run_query(_COMMAND, run, out, err)


# ---- list and show ---------------------------------------------------------------------------------------------------


def _selected(options: DeadLetterOptions) -> Iterator[str]:
    shows = options.action == "show"
    with options.source() as source:
        letters = source.letters(options.selection)
        if options.is_json:
            yield from (json_of(letter, with_content=shows) for letter in letters)
        elif shows:
            yield from shown_text(letters)
        else:
            yield from listed_text(letters)


def listed_text(letters: Iterable[DeadLetter]) -> Iterator[str]:
    """Yield a table with a row for each dead letter."""
    rows = [_row(letter) for letter in letters]
    yield from table(rows, _NUMBERS, _WIDEST) if rows else ["No dead letters."]


def _row(letter: DeadLetter) -> Mapping[str, str]:
    return {
        "PARTITION": str(letter.partition),
        "OFFSET": str(letter.offset),
        "TIME": time_text(letter.timestamp_ms) or "",
        "ORIGINAL": _original(letter) or "",
        "GROUP": letter.group or "",
        "ATTEMPTS": "" if letter.attempts is None else str(letter.attempts),
        "REPLAYS": str(letter.replays) if letter.replays else "",
        "KEY": "" if letter.key is None else excerpt(escaped(letter.key)),
        "EXCEPTION": letter.exception or "",
        "MESSAGE": excerpt(letter.message or ""),
    }


def _original(letter: DeadLetter) -> str | None:
    """Return the original record as `TOPIC[PARTITION]@OFFSET`; unknown parts are question marks."""
    if letter.original_topic is None:
        return None
    partition, offset = (
        "?" if number is None else number for number in (letter.original_partition, letter.original_offset)
    )
    return f"{letter.original_topic}[{partition}]@{offset}"


def shown_text(letters: Iterable[DeadLetter]) -> Iterator[str]:
    """Yield all data of each dead letter, with an empty line between two of them."""
    is_first = True
    for letter in letters:
        if not is_first:
            yield ""
        is_first = False
        yield from _block(letter)
    if is_first:
        yield "No dead letters."


def _block(letter: DeadLetter) -> Iterator[str]:
    yield f"{letter.topic}[{letter.partition}]@{letter.offset}"
    facts = {
        "time": time_text(letter.timestamp_ms),
        "original": _original(letter),
        "original time": time_text(letter.original_timestamp_ms),
        "group": letter.group,
        "attempts": letter.attempts,
        "replays": letter.replays or None,
        "stage": letter.stage,
        "exception": letter.exception,
        "cause": letter.cause if letter.cause != letter.exception else None,
        "message": letter.message,
        "key": escaped(letter.key),
        "value": escaped(letter.value),
    }
    for name, fact in facts.items():
        if fact is not None:
            yield f"  {name:<14} {fact}"
    headers = letter.original_headers()
    if headers:
        yield "  headers"
        yield from (f"    {name}: {escaped(value)}" for name, value in headers)
    if letter.stack:
        yield "  stack"
        yield from (f"    {line.expandtabs(4)}" for line in letter.stack.splitlines())


def json_of(letter: DeadLetter, *, with_content: bool) -> str:
    """Return a dead letter as one JSON object; unknown values are null, and bytes that are not UTF-8 are in base64."""
    record: dict[str, object] = {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": time_text(letter.timestamp_ms),
        "original_topic": letter.original_topic,
        "original_partition": letter.original_partition,
        "original_offset": letter.original_offset,
        "original_timestamp": time_text(letter.original_timestamp_ms),
        "group": letter.group,
        "attempts": letter.attempts,
        "replays": letter.replays,
        "stage": letter.stage,
        "exception": letter.exception,
        "cause": letter.cause,
        "message": letter.message,
        "key": for_json(letter.key),
    }
    if with_content:
        record["value"] = for_json(letter.value)
        record["headers"] = [{"key": name, "value": for_json(value)} for name, value in letter.original_headers()]
        record["stack"] = letter.stack
    return json.dumps(record)


# ---- replay ----------------------------------------------------------------------------------------------------------


def _replay(options: DeadLetterOptions, err: TextIO) -> tuple[Iterable[str], int]:
    with options.source() as source:
        replay = DeadLetterReplay(source, options.selection, to=options.to)
        try:
            report = replay.run(is_dry_run=options.is_dry_run)
        except MembershipError:
            done = sum(replay.report.replayed.values())
            if done and not options.is_dry_run:
                err.write(f"consumer-membership {_COMMAND}: {done} records were replayed before this error:\n")
            raise
    lines = [replayed_json(report, options)] if options.is_json else replayed_text(report, options)
    return lines, REFUSED if report.left_out else DONE


def replayed_text(report: ReplayReport, options: DeadLetterOptions) -> Iterator[str]:
    """Yield the number of replayed records, and the dead letters that were not replayed."""
    count = sum(report.replayed.values())
    act = "would be replayed (dry run: no record was written)" if options.is_dry_run else "replayed"
    yield f"{options.topic}: {count} dead letter{'' if count == 1 else 's'} {act}, group {options.replay_group}"
    if report.replayed_before:
        yield f"Replayed earlier: {report.replayed_before}"
    if report.duplicates:
        yield f"Duplicates of these records, not replayed: {report.duplicates}"
    for partition, offset in sorted(report.started_at.items()):
        yield f"Replayed earlier: all before offset {offset} of {options.topic}[{partition}]"
    if report.replayed:
        rows = [{"TOPIC": topic, "RECORDS": str(number)} for topic, number in sorted(report.replayed.items())]
        yield from ("", *table(rows, _NUMBERS))
    if report.left_out:
        yield ""
    for one in report.left_out:
        yield f"Not replayed: {options.topic}[{one.partition}]@{one.offset}: {one.reason}"


def replayed_json(report: ReplayReport, options: DeadLetterOptions) -> str:
    """Return the result as one JSON object."""
    output = {
        "topic": options.topic,
        "group": options.replay_group,
        "dry_run": options.is_dry_run,
        "replayed": [{"topic": topic, "records": number} for topic, number in sorted(report.replayed.items())],
        "replayed_before": report.replayed_before,
        "duplicates": report.duplicates,
        "started_at": [
            {"partition": partition, "offset": offset} for partition, offset in sorted(report.started_at.items())
        ],
        "not_replayed": [
            {"partition": one.partition, "offset": one.offset, "reason": one.reason} for one in report.left_out
        ],
    }
    return json.dumps(output)
