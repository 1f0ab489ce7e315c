"""A folder of text files on the local file system, or on any Hadoop file system of a Spark session.

The checkpoint tools need only these operations: list a subfolder with modification times, read a file as text, and
replace a file as a whole. A reader sees the old or the new text, even after an interrupted write.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from consumer_membership.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The class with which Spark writes checkpoints: from pyspark 4.1 on, and before.
_MANAGERS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.CheckpointFileManager",
)


class TextFolder(Protocol):
    """A folder of text files; names are relative to the folder, with `/` between their parts."""

    def exists(self, name: str = "") -> bool:
        """Return whether a file or a folder with this name exists; without a name, the folder itself."""
        ...

    def is_empty(self) -> bool:
        """Return whether the path is a folder without entries; False for a file."""
        ...

    def files(self, name: str) -> Mapping[str, float]:
        """Return the files of a subfolder and their modification times (seconds since 1970); empty if it is missing."""
        ...

    def read(self, name: str) -> str:
        """Return the text of a file, which is UTF-8.

        Raises:
            UnicodeDecodeError: the file is not UTF-8.
        """
        ...

    def replace(self, name: str, text: str) -> None:
        """Write a file and create its folders; an existing file is replaced atomically."""
        ...

    def path_of(self, name: str) -> str:
        """Return the full path, for messages."""
        ...


def folder_of(path: str, spark: SparkSession | None) -> TextFolder:
    """Return the folder at a path: on the file systems of the session, or without a session on this machine.

    Raises:
        ConfigurationError: the path needs a session, or the session does not have its file system.
    """
    if spark is not None:
        return SparkFolder(path, spark)
    scheme, sign, rest = path.partition("://")
    if sign and scheme != "file":
        remedy = (
            f"without a Spark session, only local folders can be read; for {scheme}:// use "
            "consumer_membership.spark.CheckpointFolder(path, spark) in a program with a session"
        )
        raise ConfigurationError("path", path, remedy)
    return LocalFolder(Path(rest if sign else path.removeprefix("file:")))


class LocalFolder:
    """A folder on this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def exists(self, name: str = "") -> bool:
        """Implement `TextFolder`."""
        return (self._root / name).exists()

    def is_empty(self) -> bool:
        """Implement `TextFolder`."""
        return self._root.is_dir() and not any(self._root.iterdir())

    def files(self, name: str) -> Mapping[str, float]:
        """Implement `TextFolder`."""
        folder = self._root / name
        if not folder.is_dir():
            return {}
        return {each.name: each.stat().st_mtime for each in folder.iterdir() if each.is_file()}

    def read(self, name: str) -> str:
        """Implement `TextFolder`."""
        return (self._root / name).read_text(encoding="utf-8")

    def replace(self, name: str, text: str) -> None:
        """Implement `TextFolder`.

        Hadoop's local file system keeps a checksum beside each file, and refuses a file that does not match it. A file
        without a checksum is read as it is. So the checksum is removed before the file changes, never after.
        """
        file = self._root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_name(f".{file.name}.{uuid.uuid4()}.tmp")
        try:
            with scratch.open("w", encoding="utf-8") as writing:
                writing.write(text)
                writing.flush()
                os.fsync(writing.fileno())
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            scratch.replace(file)
        finally:
            scratch.unlink(missing_ok=True)

    def path_of(self, name: str) -> str:
        """Implement `TextFolder`."""
        return str(self._root / name)


class SparkFolder:
    """A folder on any file system in the Hadoop configuration of a classic session.

    Files are written by the class that writes Spark's own checkpoints (`spark.sql.streaming.checkpointFileManagerClass`
    if it is set), so a write is as atomic as Spark's. All calls use Py4J, whose objects have no types.
    """

    def __init__(self, path: str, spark: SparkSession) -> None:
        self._jvm: Any = getattr(spark, "_jvm", None)
        if self._jvm is None:
            remedy = "only a classic session can access Spark's file systems; Spark Connect has no access"
            raise ConfigurationError("spark", type(spark).__name__, remedy)
        self._path = path
        with self._translated():
            self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001 - there is no public method
            self._root: Any = self._jvm.org.apache.hadoop.fs.Path(path)
            self._files: Any = self._root.getFileSystem(self._conf)

    def exists(self, name: str = "") -> bool:
        """Implement `TextFolder`."""
        with self._translated():
            return bool(self._files.exists(self._at(name)))

    def is_empty(self) -> bool:
        """Implement `TextFolder`."""
        with self._translated():
            is_folder = self._files.exists(self._root) and self._files.getFileStatus(self._root).isDirectory()
            return bool(is_folder and not list(self._files.listStatus(self._root)))

    def files(self, name: str) -> Mapping[str, float]:
        """Implement `TextFolder`."""
        at = self._at(name)
        with self._translated():
            if not self._files.exists(at):
                return {}
            found = [each for each in self._files.listStatus(at) if each.isFile()]
            return {each.getPath().getName(): each.getModificationTime() / 1000 for each in found}

    def read(self, name: str) -> str:
        """Implement `TextFolder`."""
        with self._translated():
            reading = self._files.open(self._at(name))
            try:
                return bytes(reading.readAllBytes()).decode()
            finally:
                reading.close()

    def replace(self, name: str, text: str) -> None:
        """Implement `TextFolder`."""
        at = self._at(name)
        with self._translated():
            manager = self._manager()
            manager.mkdirs(at.getParent())
            writing = manager.createAtomic(at, True)
            try:
                writing.write(bytearray(text.encode()))
            except BaseException:
                writing.cancel()
                raise
            writing.close()

    def path_of(self, name: str) -> str:
        """Implement `TextFolder`."""
        return str(self._at(name).toString())

    def _at(self, name: str) -> Any:  # noqa: ANN401 - Py4J's
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name) if name else self._root

    def _manager(self) -> Any:  # noqa: ANN401 - Py4J's
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for name in _MANAGERS:
            if loader.getResource(f"{name.replace('.', '/')}.class") is not None:
                found = self._jvm
                for part in name.split("."):
                    found = getattr(found, part)
                return found.create(self._root, self._conf)
        raise ConfigurationError("path", self._path, f"this Spark has no {_MANAGERS[0]}; write to a local folder")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            yield
        except Py4JJavaError as failed:
            remedy = f"Spark cannot use it: {failed.java_exception.toString()}"
            raise ConfigurationError("path", self._path, remedy) from failed
