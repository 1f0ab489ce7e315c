"""The files of a sink in an object store with S3's interface, through `obstore`.

An object has no draft: it is there as a whole or not at all. It is put on the condition that nobody has its name
(`If-None-Match: *`), which is what a hard link is in a folder. A store that takes the condition and does not keep it
would let a dead writer overwrite a living one's records, so each process tries it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.arguments import required
from consumer_membership.spark.sinks.files import FileChain, unreadable
from consumer_membership.spark.sinks.resource import PerProcess

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

#: Its place is taken from the first time on: whoever may take it again is in a store that keeps no condition.
_TRIAL = ".consumer-membership.put-if-none-match"
#: How the names of S3's directory buckets end.
_DIRECTORY = "--x-s3"
#: Of a Parquet file: its last bytes, and more than its footer has as this package writes it.
_MAGIC, _FOOTER = b"PAR1", 64 * 1024
_NEEDED = (
    "must be a bucket of a store that keeps the condition If-None-Match: * of PutObject (Amazon S3, and what says that "
    "it has conditional writes)"
)


class Bucket:
    """What begins with an `s3://` URL in a bucket.

    `options` are those of `obstore.store.S3Store`; what is not in them comes from the environment (`AWS_REGION`,
    `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, ...) or the machine's role, in each task.

    Raises:
        ConfigurationError: no such URL, an option that there is not, no `obstore`.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        required("obstore.store", "folder", url, extra="s3")
        self._url = url.rstrip("/")
        if self._url.split("/")[2].endswith(_DIRECTORY):
            raise ConfigurationError("folder", url, "must be a general purpose bucket; this one lists in no order")
        self._options = dict(options)
        self._store: PerProcess[Any] = PerProcess()
        self._is_tried: PerProcess[bool] = PerProcess()
        # Whatever is wrong with them is said on the driver; nothing is asked of the store yet.
        self._opened()

    def __str__(self) -> str:
        """As its URL."""
        return self._url

    def prepare(self) -> None:
        """Try once what everything rests upon.

        Raises:
            ConfigurationError: the store lets one writer overwrite the other's object.
        """
        self._is_tried.get(self._tried)

    def refuse_if_closed(self) -> None:
        """Nothing: a right to put objects shows when one is put."""

    def names(self, prefix: str = "") -> Iterator[str]:
        """Of every object that begins so; what is behind a further slash is left out."""
        import obstore

        # The library's own prefix is of whole segments: names are compared here, and begin behind the one before.
        with self._told(prefix or "*"):
            for page in obstore.list(self._get(), offset=_before(prefix)):
                for found in page:
                    name = found["path"]
                    if not name.startswith(prefix) and name > prefix:
                        return
                    if name.startswith(prefix) and "/" not in name:
                        yield name

    def has(self, name: str) -> bool:
        """Whether it is there."""
        import obstore
        from obstore.exceptions import NotFoundError

        with self._told(name):
            try:
                obstore.head(self._get(), name)
            except (NotFoundError, FileNotFoundError):
                return False
        return True

    def metadata(self, name: str) -> Mapping[bytes, bytes]:
        """Of a file's footer, which alone is read.

        Raises:
            SinkError: it is no Parquet file.
        """
        import pyarrow as pa
        from pyarrow import parquet

        end = self._end(name, _FOOTER)
        if end[-4:] == _MAGIC:
            # How long the footer is stands before the file's last word.
            needed = int.from_bytes(end[-8:-4], "little") + 8
            end = self._end(name, needed) if needed > len(end) else end
        try:
            found: Mapping[bytes, bytes] = parquet.read_metadata(pa.BufferReader(end)).metadata or {}
        except pa.ArrowInvalid as error:
            raise unreadable(f"{self}/{name}", error) from error
        return found

    def touch(self, name: str) -> None:
        """Put an empty object there."""
        import obstore

        with self._told(name):
            obstore.put(self._get(), name, b"")

    def draft(self, name: str, _: tuple[int, int]) -> BucketDraft:
        """In memory."""
        return BucketDraft(self._put, name)

    def remove_drafts(self, chain: FileChain, *, below: tuple[int, int]) -> None:
        """There are none."""

    # ---- the store ----

    def _end(self, name: str, size: int) -> bytes:
        """The last bytes of an object, or all of it."""
        import obstore

        with self._told(name):
            return bytes(obstore.get(self._get(), name, options={"range": {"suffix": size}}).bytes())

    def _put(self, name: str, contents: bytes) -> bool:
        """Whether it was put; not if the name is taken, be it by this very request, whose answer was lost."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._told(name):
            try:
                # In parts it would be put without the condition.
                obstore.put(self._get(), name, contents, mode="create", use_multipart=False)
            except AlreadyExistsError:
                return False
        return True

    def _tried(self) -> bool:
        from obstore.exceptions import NotSupportedError

        try:
            is_kept = not self._put(_TRIAL, b"") or not self._put(_TRIAL, b"")
        except OSError as failed:
            if isinstance(failed.__cause__, NotSupportedError) or "NotImplemented" in str(failed):
                is_kept = False
            else:
                raise
        if not is_kept:
            raise ConfigurationError("folder", self._url, _NEEDED)
        return True

    def _get(self) -> Any:  # noqa: ANN401 - an extra's
        return self._store.get(self._opened)

    def _opened(self) -> object:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        # Who names an endpoint without TLS wants none.
        is_plain = str(self._options.get("endpoint", "")).startswith("http://")
        try:
            return S3Store.from_url(
                self._url, client_options={"allow_http": True} if is_plain else None, **self._options
            )
        except (BaseError, ValueError, TypeError) as refused:
            words = str(refused).partition("\n")[0]
            raise ConfigurationError("storage_options", sorted(self._options), f"must fit {self._url}: {words}") from (
                refused
            )

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """What the store refuses, as a file system would."""
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as refused:
            raise OSError(f"{self}/{name}: {str(refused).partition(chr(10))[0]}") from refused


def _before(prefix: str) -> str | None:
    """A name right before all that begin so; None for the beginning."""
    return prefix[:-1] + chr(ord(prefix[-1]) - 1) + "~" if prefix else None


@dataclass(slots=True)
class BucketDraft:
    """An object in memory, until it is put."""

    put: Callable[[str, bytes], bool]
    name: str
    contents: bytes = b""

    def write(self, table: pa.Table, compression: str) -> None:
        """To memory."""
        import pyarrow as pa
        from pyarrow import parquet

        sink = pa.BufferOutputStream()
        parquet.write_table(table, sink, compression=compression)
        self.contents = sink.getvalue().to_pybytes()

    def publish(self) -> bool:
        """Put it; False if the name is taken."""
        return self.put(self.name, self.contents)

    def discard(self) -> None:
        """Let go of it."""
        self.contents = b""
