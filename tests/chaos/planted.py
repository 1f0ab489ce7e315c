"""Planted bugs: small patches of the package and of the checker, each of which the chaos tests must report.

A patch replaces text in the source of one module while a process imports the module (`apply_from_environment`). So a
member process runs the broken package, and the harness runs the correct one. Each text occurs exactly once in its
module. `tests/chaos/test_planted.py` fails if a change of the package makes a patch inapplicable.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from tests.chaos.checker import Rule

VARIABLE = "CHAOS_PLANTED"
_ROOT = Path(__file__).resolve().parents[2]


class Script(Enum):
    """The events of a small round."""

    #: Members join and leave without faults: no record may be repeated.
    NO_FAULTS = "no faults"
    #: A member is suspended for longer than its session and continues; another member is killed.
    FAULTS = "faults"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The round that shows a bug."""

    script: Script = Script.NO_FAULTS
    protocol: str = "consumer"
    commits: str = "sync"
    has_leases: bool = False
    slow_revoke_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A bug: `replacements` of old and new text in one module, the round that shows it, and the rules that report it.

    The round must break at least one of `rules`. A bug of the checker has no setup and no rules: the checker's tests
    must fail.
    """

    module: str
    replacements: tuple[tuple[str, str], ...]
    rules: frozenset[Rule] = frozenset()
    setup: Setup | None = None

    @property
    def path(self) -> Path:
        """The file of the module."""
        return _ROOT / f"{self.module.replace('.', '/')}.py"

    def applied_to(self, source: str) -> str:
        """Return the broken source.

        Raises:
            ValueError: a text does not occur exactly once.
        """
        for old, new in self.replacements:
            if source.count(old) != 1:
                raise ValueError(f"{self.module} has this text {source.count(old)} times instead of once: {old}")
            source = source.replace(old, new)
        return source


def _in(module: str, *replacements: tuple[str, str], finds: Sequence[Rule], **setup: object) -> Planted:
    values: Mapping[str, object] = setup
    return Planted(
        module=f"consumer_membership.{module}",
        replacements=replacements,
        rules=frozenset(finds),
        setup=Setup(**values),  # type: ignore[arg-type]  # the fields of Setup
    )


def _in_checker(old: str, new: str) -> Planted:
    return Planted(module="tests.chaos.checker", replacements=((old, new),))


_R, _S = Rule, Script

#: Each bug by its name.
BUGS: Mapping[str, Planted] = {
    # ---- the core: reconciliation and offsets ----
    "start-after-the-committed-offset": _in(
        "membership.reconciler",
        (
            "self._offsets = {partition: offsets[partition] for partition in requested}",
            "self._offsets = {partition: offsets[partition] + (offsets[partition] > 0) for partition in requested}",
        ),
        finds=[_R.SKIPPED, _R.LOST],
    ),
    "start-before-the-committed-offset": _in(
        "membership.reconciler",
        (
            "self._offsets = {partition: offsets[partition] for partition in requested}",
            "self._offsets = {partition: max(0, offsets[partition] - 1) for partition in requested}",
        ),
        finds=[_R.REPEATED],
    ),
    "acknowledge-before-on-revoke-returns": _in(
        "membership.reconciler",
        (
            "self._event.emit(RevokePartitions(attempt=self.attempt, partitions=self._names_of_revoking()))",
            (
                "self._event.emit(RevokePartitions(attempt=self.attempt, partitions=self._names_of_revoking()))\n"
                "                if not self.is_leaving:\n"
                "                    self._remove()\n"
                "                    self._move_on()"
            ),
        ),
        finds=[_R.OWNERS_BY_EPOCH],
        has_leases=True,
        slow_revoke_s=2.0,
    ),
    "revoke-without-the-automatic-commit": _in(
        "membership.reconciler",
        (
            "case Phase.COMMIT | Phase.COMMIT_STORED if self._settings.auto_commit and offsets:",
            "case Phase.COMMIT | Phase.COMMIT_STORED if False:",
        ),
        finds=[_R.REPEATED],
        commits="auto",
    ),
    "lose-partitions-without-on-lost": _in(
        "membership.reconciler",
        (
            "self._enter(Phase.LOSE if may_hold else Phase.IDLE)\n        if may_hold:",
            "self._enter(Phase.IDLE)\n        if False:",
        ),
        finds=[_R.OWNERS_BY_LEASE, _R.STATEMENT, _R.OWNERS_BY_EPOCH, _R.NOT_SETTLED, _R.SKIPPED, _R.REPEATED],
        script=_S.FAULTS,
        has_leases=True,
    ),
    "report-commits-that-were-not-sent": _in(
        "membership.offsets",
        (
            "        self._begun += 1\n",
            (
                "        if commit_id > 0:\n"
                "            self._emit_end(commit_id, offsets, dict.fromkeys(offsets))\n"
                "            return\n"
                "        self._begun += 1\n"
            ),
        ),
        finds=[_R.REPEATED],
    ),
    "commit-one-record-too-few": _in(
        "membership.offsets",
        (
            "offsets=dict(commit.offsets),\n",
            "offsets={p: replace(o, offset=max(0, o.offset - 1)) for p, o in commit.offsets.items()},\n",
        ),
        finds=[_R.REPEATED],
    ),
    "commit-one-record-too-many": _in(
        "membership.offsets",
        (
            "offsets=dict(commit.offsets),\n",
            "offsets={p: replace(o, offset=o.offset + 1) for p, o in commit.offsets.items()},\n",
        ),
        finds=[_R.SKIPPED, _R.LOST],
    ),
    "lease-of-a-minute": _in(
        "membership.consumer.protocol",
        (
            "return confirmed_at + self._settings.lease_s(self.claim.session.timeout_s or self._assumed_session_s)",
            "return confirmed_at + 60.0",
        ),
        finds=[_R.STATEMENT],
        has_leases=True,
    ),
    "view-of-an-old-epoch": _in(
        "membership.member",
        ("member_epoch=extra.member_epoch,", "member_epoch=min(extra.member_epoch, 1),"),
        finds=[_R.OWNERS_BY_EPOCH],
    ),
    "view-without-a-partition": _in(
        "membership.member",
        (
            "owned=ownership.named_owned,",
            "owned=dict(list(ownership.named_owned.items())[1:]),",
        ),
        finds=[_R.STATEMENT],
    ),
    "commit-partitions-that-were-given-up": _in(
        "membership.member",
        ("if self.settings.may_commit_revoked or not len(self._commits):", "if True:"),
        finds=[_R.COMMIT_NOT_OWNED, _R.OFFSETS_BACK],
        commits="late",
    ),
    # ---- the runtime ----
    "call-no-on-assign-the-second-time": _in(
        "runtime.application.steps",
        (
            "if callback is None or self._called_for is self._step:",
            (
                "if callback is None or self._called_for is self._step or (\n"
                "            kind is CallbackKind.ASSIGNED and self.rebalances > 1\n"
                "        ):"
            ),
        ),
        finds=[_R.NOT_OWNED],
    ),
    "call-no-on-revoke": _in(
        "runtime.application.steps",
        (
            "if callback is None or self._called_for is self._step:",
            "if callback is None or self._called_for is self._step or kind is CallbackKind.REVOKED:",
        ),
        finds=[_R.OWNERS_BY_EPOCH, _R.STATEMENT, _R.NOT_OWNED],
        has_leases=True,
    ),
    "deliver-records-of-revoked-partitions": _in(
        "runtime.application.steps",
        (
            "            self._holdings.freeze(partitions)\n            self._reported = self._book.due(partitions)",
            "            self._reported = self._book.due(partitions)",
        ),
        (
            "            self._holdings.remove(partitions)\n",
            "            self._holdings.held -= partitions\n",
        ),
        finds=[_R.NOT_OWNED, _R.ORDER, _R.REPEATED],
    ),
    "resume-at-the-fetched-position": _in(
        "runtime.application.fetcher",
        (
            "return before_seek | self.positions(assigned)",
            (
                "return before_seek | {\n"
                "            key_of(one): OffsetAndMetadata(offset=one.offset + 3, leader_epoch=None)\n"
                "            for one in self._handle_positions()\n"
                "            if one.offset >= 0\n"
                "        }"
            ),
        ),
        finds=[_R.COMMIT_UNREAD, _R.SKIPPED, _R.LOST],
        commits="auto",
    ),
    "return-batches-in-reverse": _in(
        "runtime.application.fetcher",
        (
            "        buffer.landed.extend(map(self.handle.consume, (limit,), (timeout_s,)))\n",
            "        buffer.landed.append(self.handle.consume(limit, timeout_s)[::-1])\n",
        ),
        finds=[_R.ORDER],
    ),
    "drop-a-record-of-a-batch": _in(
        "runtime.application.fetcher",
        (
            "        buffer.landed.extend(map(self.handle.consume, (limit,), (timeout_s,)))\n",
            (
                "        landed = self.handle.consume(limit, timeout_s)\n"
                "        buffer.landed.append([m for m in landed if (m.offset() or 0) % 50 != 49])\n"
            ),
        ),
        finds=[_R.SKIPPED, _R.LOST],
    ),
    "return-a-record-twice": _in(
        "runtime.application.fetcher",
        (
            "        buffer.landed.extend(map(self.handle.consume, (limit,), (timeout_s,)))\n",
            (
                "        landed = self.handle.consume(limit, timeout_s)\n"
                "        buffer.landed.append([m for m in landed for _ in range(1 + ((m.offset() or 0) % 50 == 49))])\n"
            ),
        ),
        finds=[_R.REPEATED],
    ),
    "deliver-after-the-lease": _in(
        "runtime.line",
        (
            "return self._wake_up.is_set or self._clock() >= self._line.snapshot.lease_ends_at",
            "return self._wake_up.is_set",
        ),
        ("        return self.clock() >= self.snapshot.lease_ends_at\n", "        return False\n"),
        finds=[_R.OWNERS_BY_LEASE],
        script=_S.FAULTS,
        has_leases=True,
    ),
    "restart-of-healthy-members": _in(
        "health.verdict",
        ("would_restart_help=helps,", "would_restart_help=True,"),
        finds=[_R.STATEMENT, _R.NOT_SETTLED],
    ),
    # ---- the classic protocol ----
    "classic-start-before-the-committed-offset": _in(
        "membership.reconciler",
        (
            "self._offsets = {partition: offsets[partition] for partition in requested}",
            "self._offsets = {partition: max(0, offsets[partition] - 1) for partition in requested}",
        ),
        finds=[_R.REPEATED],
        protocol="classic",
    ),
    "classic-revoke-without-the-automatic-commit": _in(
        "membership.reconciler",
        (
            "case Phase.COMMIT | Phase.COMMIT_STORED if self._settings.auto_commit and offsets:",
            "case Phase.COMMIT | Phase.COMMIT_STORED if False:",
        ),
        finds=[_R.REPEATED],
        protocol="classic",
        commits="auto",
    ),
    # ---- the checker ----
    "checker-ignores-the-committed-offset": _in_checker("if offset < ownership.committed:", "if offset < 0:"),
    "checker-counts-refused-commits": _in_checker(
        "if event.error is not None or event.is_unknown:", "if event.is_unknown and event.error:"
    ),
    "checker-accepts-lost-records": _in_checker(
        "if at_ns < self._settled_ns and not logs", "if at_ns > self._settled_ns and not logs"
    ),
    "checker-accepts-equal-epochs": _in_checker(
        "if 0 <= new.epoch <= former.epoch:", "if 0 <= new.epoch < former.epoch:"
    ),
    "checker-accepts-leased-overlap": _in_checker(
        "by_design = process.is_evicted or owner.shares_instance_id(process)",
        "by_design = True or owner.shares_instance_id(process)",
    ),
    "checker-accepts-second-results": _in_checker("if begins_again else count != 1", "if begins_again else count < 1"),
    "checker-ignores-resets": _in_checker("log.committed = log.observed = 0", "log.observed = 0"),
}


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads one module with a bug."""

    def __init__(self, bug: Planted) -> None:
        super().__init__(bug.module, str(bug.path))
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - the signature is the base's
        """Compile the broken source, without reading or writing a bytecode cache."""
        source = self._bug.applied_to(self._bug.path.read_text(encoding="utf-8"))
        code: CodeType = compile(source, str(self._bug.path), "exec", dont_inherit=True)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module with a bug before Python finds the correct module."""

    def __init__(self, bug: Planted) -> None:
        self._bug = bug

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the signature is the base's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Find the module with the bug, and no other module."""
        if fullname != self._bug.module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._bug.path, loader=_Loader(self._bug))


def apply(name: str) -> None:
    """Make this process import the broken module.

    Raises:
        RuntimeError: the process has already imported the correct module.
    """
    bug = BUGS[name]
    if bug.setup is None:
        # This module has imported the correct checker. The tests of the checker import it again after this call.
        sys.modules.pop(bug.module, None)
    elif bug.module in sys.modules:
        raise RuntimeError(f"{bug.module} was imported before the bug {name} was planted")
    sys.meta_path.insert(0, _Finder(bug))


def apply_from_environment() -> None:
    """Apply the bug that the environment variable names, if it is set."""
    name = os.environ.get(VARIABLE)
    if name:
        apply(name)
