"""When a ring becomes a file, and where: on request of a program or a signal, or automatically after a failure.

Each consumer writes only a few files automatically, so that a repeated failure does not fill the disk.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from typing import TYPE_CHECKING, Final

from consumer_membership.errors import ConfigurationError, UseError
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.recorder.ring import Recorder

if TYPE_CHECKING:  # imported for types only: it imports more than a consumer needs
    from pathlib import Path

#: The most files that one consumer writes automatically, and the shortest time between two for one kind of cause.
MOST_FILES: Final = 10
SPACING_S: Final = 60.0
SUFFIX: Final = ".recording.gz"
#: Numbers the files of the whole process, so that their names differ.
_NUMBERS = itertools.count(1)
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """The recorder's part of the configuration.

    Attributes:
        is_on: Whether events are kept.
        directory: The folder for files, including automatic ones; None: files are written on request only.
        on_signal: Whether SIGUSR2 writes a file for each consumer.
    """

    is_on: bool = True
    directory: str | None = None
    on_signal: bool = False


def check_directory(settings: RecorderSettings) -> None:
    """Reject a folder to which this process could not write a recording later.

    Raises:
        ConfigurationError: the folder, or its nearest existing parent, is not a folder or is not writable.
    """
    if not settings.is_on or settings.directory is None:
        return
    there = os.path.abspath(settings.directory)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        why = f"{there} is not a folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        why = f"{there} is not writable for this process"
    else:
        return
    raise ConfigurationError("recorder.directory", settings.directory, f"{why}; set a writable folder")


class Dumps:
    """The files of one member's recorder; thread-safe."""

    def __init__(self, recorder: Recorder, settings: RecorderSettings) -> None:
        self.recorder = recorder
        self._settings = settings
        self._lock = threading.Lock()
        self._count = 0
        self._written_at: dict[str, float] = {}

    def write(self, cause: str, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the ring's contents to this file or into this folder; None: the configured or the temporary folder.

        A path that ends with a slash is a folder, which is created if it does not exist.

        Raises:
            UseError: the recorder is off.
            OSError: the file cannot be written.
        """
        from pathlib import Path  # few consumers write a file

        from consumer_membership.recorder.recording import write

        if not self._settings.is_on:
            raise UseError("recorder.enable=false: this consumer was not recorded; remove the key")
        target = Path(self._folder() if path is None else path)
        if path is None or target.is_dir() or os.fspath(path).endswith(("/", os.sep)):
            target.mkdir(parents=True, exist_ok=True)
            target /= self._name()
        failure = self.recorder.failure
        full_cause = f"{cause} (recording stopped earlier: {failure})" if failure else cause
        write(target, self.recorder.contents(), full_cause, time.monotonic())
        return target

    def write_automatically(self, kind: str, cause: str) -> str | None:
        """Write a file for this kind of cause, unless there are enough; return the line to log, or None."""
        if not (self._settings.is_on and self._settings.directory is not None and self._may_write(kind)):
            return None
        try:
            path = self.write(cause)
        except Exception as error:  # noqa: BLE001 - the member continues after any error
            return f"Failed to write a recording ({cause}): {type(error).__name__}: {error}"
        return f"Wrote a recording of this member to {path} ({cause}); read it with: consumer-membership replay {path}"

    def _may_write(self, kind: str) -> bool:
        now = time.monotonic()
        with self._lock:
            last = self._written_at.get(kind)
            if self._count >= MOST_FILES or (last is not None and now - last < SPACING_S):
                return False
            self._count += 1
            self._written_at[kind] = now
        return True

    def _folder(self) -> str:
        if self._settings.directory is not None:
            return self._settings.directory
        import tempfile  # needed only for a file without a configured folder

        return tempfile.gettempdir()

    def _name(self) -> str:
        settings = self.recorder.settings
        identity = "-".join(filter(None, (settings.group_id, settings.instance_id)))[:100]
        moment = time.time()
        stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(moment))}{int(moment * 1000) % 1000:03}Z"
        return f"{_NOT_OF_NAMES.sub('_', identity)}-{stamp}-{os.getpid()}-{next(_NUMBERS)}{SUFFIX}"
