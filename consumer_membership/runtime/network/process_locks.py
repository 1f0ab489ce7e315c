"""Proof that the process of another member has ended: a file that each process keeps locked for as long as it lives.

With `group.instance.id.conflict.policy=takeover-when-dead`, a member locks a file before it joins; the name is a hash
of its member id. If another process can lock the file of a holder, that is proof that the process of the holder has
ended: the kernel releases a POSIX record lock when its process ends for any reason. A stopped process keeps the lock,
a forked child does not inherit it, and a process that is replaced by `exec` loses it.

The proof holds only if one kernel decides about both locks. So the file also has the boot id of the kernel, which all
containers of a host share; a file with another boot id, or none, proves nothing. That excludes volumes that two hosts
mount, and restarts of the host, after which the session has ended anyway.

A record lock belongs to the process, and the process loses it when it closes *any* descriptor of that file. No process
may therefore open its own files: the names in `_OURS` are never checked, and their members are alive. A name is in
`_OURS` before its file exists.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from consumer_membership.runtime.log_lines import PackageLog

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

_LOG = PackageLog("consumer_membership.network", "LOCK")

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_SUFFIX = ".lock"
#: Files without a lock are removed after this time. Living processes touch their files once in a session.
STALE_AFTER_S = 86_400.0
#: The names of the files that this process has, or is about to have.
_OURS: set[str] = set()


def default_directory() -> Path:
    """The directory of this user's lock files, if none is configured."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"consumer-membership-{user}"


class ProcessLocks:
    """The lock of one member's process, and checks of other members' locks; used on one thread.

    Without a usable directory, no lock is held and no death is proved: members then wait for each other's sessions.
    """

    def __init__(self, group_id: str, directory: str | None = None) -> None:
        self._group_id = group_id
        self._directory = Path(directory) if directory else default_directory()
        self._is_shared = bool(directory)
        self._boot_id = _boot_id()
        self._held: tuple[str, str] | None = None
        self._file: int | None = None
        self._has_warned = False

    def hold(self, instance_id: str, member_id: str) -> None:
        """Lock the file of this member before it joins; create the file again if it was removed."""
        if self._boot_id is None:
            self._warn("the operating system has no record locks or no boot id")
            return
        name = self._name(instance_id, member_id)
        if self._held == (instance_id, member_id) and self._is_in_place(name):
            os.utime(self._directory / name)
            return
        self.release()
        _OURS.add(name)
        try:
            self._remove_stale()
            self._file = self._make(name, self._text(instance_id, member_id))
        except OSError as error:
            self._warn(str(error))
            return
        self._held = (instance_id, member_id)

    def refresh(self) -> None:
        """Touch the file, so that no cleaner of temporary files removes it."""
        if self._held is not None:
            self.hold(*self._held)

    def is_dead(self, instance_id: str, member_id: str) -> bool:
        """Return whether the process of this member has certainly ended; False: it is alive, or there is no proof."""
        name = self._name(instance_id, member_id)
        if self._boot_id is None or name in _OURS:
            return False
        try:
            self._check_directory()
            # Not blocking: the name may be that of a pipe.
            file = os.open(self._directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            # A shared lock: processes that check at the same time do not take each other for the holder.
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            text = self._text(instance_id, member_id)
            return os.read(file, len(text) + 1) == text
        except OSError:
            return False
        finally:
            os.close(file)

    def release(self) -> None:
        """Remove the file: the member has ended, and its process may live on."""
        if self._file is None or self._held is None:
            return
        name = self._name(*self._held)
        if self._is_in_place(name):
            with suppress(OSError):
                (self._directory / name).unlink()
        os.close(self._file)
        self._file, self._held = None, None
        _OURS.discard(name)

    # ---- the files ----

    def _name(self, instance_id: str, member_id: str) -> str:
        """The file's name; ids may have any characters, and any length."""
        key = json.dumps((self._group_id, instance_id, member_id))
        return hashlib.sha256(key.encode()).hexdigest()[:40] + _SUFFIX

    def _text(self, instance_id: str, member_id: str) -> bytes:
        facts = {"boot": self._boot_id, "group": self._group_id, "instance": instance_id, "member": member_id}
        return json.dumps(facts).encode() + b"\n"

    def _make(self, name: str, text: bytes) -> int:
        """Create the file; it gets its name only when it is locked and complete."""
        self._directory.mkdir(mode=0o755 if self._is_shared else 0o700, parents=True, exist_ok=True)
        self._check_directory()
        path = self._directory / name
        draft = path.with_suffix(".new")
        file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(file, text)
            draft.replace(path)
        except OSError:
            os.close(file)
            raise
        return file

    def _is_in_place(self, name: str) -> bool:
        """Whether the locked file still has its name."""
        if self._file is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._file), (self._directory / name).lstat())
        except OSError:
            return False

    def _check_directory(self) -> None:
        """Raise if another user could have put files into the default directory, which would prove a death falsely."""
        if self._is_shared:
            return
        status = self._directory.lstat()
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        if not is_ours or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{self._directory} is not a directory that only this user may write")

    def _remove_stale(self) -> None:
        """Remove files that no process has locked for a long time."""
        if not self._directory.is_dir():
            return
        before = time.time() - STALE_AFTER_S
        for path in self._directory.glob(f"*{_SUFFIX}"):
            if path.name in _OURS:
                continue
            with suppress(OSError):
                if path.lstat().st_mtime < before and not _is_locked(path):
                    path.unlink()

    def _warn(self, why: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _LOG.warning(
                "No lock file in %s (%s): if this process is killed, its replacement with "
                "group.instance.id.conflict.policy=takeover-when-dead waits for the end of the session; set "
                "group.instance.id.lock.directory",
                self._directory,
                why,
            )


def _is_locked(path: Path) -> bool:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _boot_id() -> str | None:
    """Return the boot id of the kernel; None: the system has no boot id or no record locks."""
    if not _HAS_LOCKS:
        return None
    try:
        return _BOOT_ID.read_text("ascii").strip() or None
    except OSError:
        return None
