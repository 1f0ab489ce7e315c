"""`remove-members`: rid a group of members, each with its own result; as a table, or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from consumer_membership.admin import Removal
from consumer_membership.cli.asking import DONE, REFUSED, Asking, answered
from consumer_membership.cli.describe import epoch_of, member_record
from consumer_membership.cli.tables import table

_COLUMNS = ("ASKED FOR", "RESULT", "MEMBER ID", "INSTANCE ID", "CLIENT ID", "HOST", "EPOCH")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalOptions:
    """Whom to remove from which group."""

    asking: Asking
    instance_ids: tuple[str, ...] = ()
    member_ids: tuple[str, ...] = ()
    everyone: bool = False
    reason: str | None = None
    is_dry_run: bool = False


def remove_members(options: RemovalOptions, out: TextIO, err: TextIO) -> int:
    """Remove the members and show what became of each on `out`; the exit code, 1 if any of them failed."""

    def ask() -> int:
        asking = options.asking
        removals = asking.admin().remove_members(
            asking.group,
            instance_ids=options.instance_ids,
            member_ids=options.member_ids,
            everyone=options.everyone,
            reason=options.reason,
            dry_run=options.is_dry_run,
        )
        lines = [as_json(removals, options)] if asking.is_json else as_text(removals, options)
        out.writelines(f"{line}\n" for line in lines)
        return DONE if all(removal.succeeded for removal in removals) else REFUSED

    return answered("remove-members", ask, out, err)


def as_text(removals: Sequence[Removal], options: RemovalOptions) -> Iterator[str]:
    """First the sum, then each member, then what follows for whom."""
    if not removals:
        yield f"Group {options.asking.group}: no members, nobody to remove"
        return
    done = sum(removal.succeeded for removal in removals)
    act = "would be removed (dry run, nothing was done)" if options.is_dry_run else "removed"
    yield f"Group {options.asking.group}: {done} of {len(removals)} {act}"
    yield ""
    yield from table(_COLUMNS, [_row(removal) for removal in removals])
    messages: dict[str, list[str]] = {}
    for removal in removals:
        if removal.message:
            messages.setdefault(removal.message, []).append(_asked(removal))
    if messages:
        yield ""
    for message, who in messages.items():
        yield f"{', '.join(who)}: {message}"


def _asked(removal: Removal) -> str:
    return removal.asked.member_id or removal.asked.instance_id or ""


def _row(removal: Removal) -> dict[str, str]:
    member = removal.member
    row = {"ASKED FOR": _asked(removal), "RESULT": removal.outcome.value}
    if member is None:
        return row
    return row | {
        "MEMBER ID": member.member_id,
        "INSTANCE ID": member.instance_id or "",
        "CLIENT ID": member.client_id,
        "HOST": member.host,
        "EPOCH": epoch_of(member),
    }


def as_json(removals: Sequence[Removal], options: RemovalOptions) -> str:
    """The results as one JSON object."""
    results = [
        {
            "asked": {"member_id": removal.asked.member_id or None, "instance_id": removal.asked.instance_id},
            "outcome": removal.outcome.name.lower(),
            "succeeded": removal.succeeded,
            "message": removal.message or None,
            "member": None if removal.member is None else member_record(removal.member),
        }
        for removal in removals
    ]
    told = {"group_id": options.asking.group, "dry_run": options.is_dry_run, "results": results}
    return json.dumps(told, indent=2)
