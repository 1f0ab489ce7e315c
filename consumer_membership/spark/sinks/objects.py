"""The files of a sink in an object store with S3's interface, through `obstore`.

A store has no drafts: an object exists as a whole or not at all. It is put on the condition that no object has its name
(`If-None-Match: *`), which corresponds to a hard link in a folder. With a store that accepts but ignores the condition,
a replaced writer could overwrite the records of its replacement, so each process tests the store once.
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

#: The object of the test: if it can be put twice, the store ignores the condition.
_TRIAL = ".consumer-membership.put-if-none-match"
#: The end of the names of S3's directory buckets.
_DIRECTORY = "--x-s3"
#: The last bytes of a Parquet file, and more bytes than its footer has if this package wrote it.
_MAGIC, _FOOTER = b"PAR1", 64 * 1024
_NEEDED = (
    "must be a bucket of a store that honors the condition If-None-Match: * of PutObject (Amazon S3, or another store "
    "with conditional writes)"
)


class Bucket:
    """The objects of a bucket below an `s3://` URL.

    `options` are those of `obstore.store.S3Store`. In each task, missing options come from the environment
    (`AWS_REGION`, `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, ...) or from the machine's role.

    Raises:
        ConfigurationError: the URL or an option is wrong, or `obstore` is not installed.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        required("obstore.store", "folder", url, extra="s3")
        self._url = url.rstrip("/")
        if self._url.split("/")[2].endswith(_DIRECTORY):
            remedy = "must be a general purpose bucket; directory buckets do not list in order"
            raise ConfigurationError("folder", url, remedy)
        self._options = dict(options)
        self._store: PerProcess[Any] = PerProcess()
        self._is_tried: PerProcess[bool] = PerProcess()
        # Raises errors in the options on the driver; sends no request to the store yet.
        self._opened()

    def __str__(self) -> str:
        """Return the URL."""
        return self._url

    def prepare(self) -> None:
        """Test once in each process that the store honors the condition.

        Raises:
            ConfigurationError: the store lets a writer overwrite an object.
        """
        self._is_tried.get(self._tried)

    def refuse_if_closed(self) -> None:
        """Do nothing: only a put shows whether objects may be put."""

    def names(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of all objects that begin with `prefix`; names with another slash are left out."""
        import obstore

        # The library's prefix matches whole segments only, so names are compared here; the list starts before them.
        with self._as_oserror(prefix or "*"):
            for page in obstore.list(self._get(), offset=_before(prefix)):
                for found in page:
                    name = found["path"]
                    if not name.startswith(prefix) and name > prefix:
                        return
                    if name.startswith(prefix) and "/" not in name:
                        yield name

    def has(self, name: str) -> bool:
        """Return whether an object exists."""
        import obstore
        from obstore.exceptions import NotFoundError

        with self._as_oserror(name):
            try:
                obstore.head(self._get(), name)
            except (NotFoundError, FileNotFoundError):
                return False
        return True

    def metadata(self, name: str) -> Mapping[bytes, bytes]:
        """Return the key-value metadata of a file; only its footer is read.

        Raises:
            SinkError: the object is not a Parquet file.
        """
        import pyarrow as pa
        from pyarrow import parquet

        end = self._end(name, _FOOTER)
        if end[-4:] == _MAGIC:
            # The length of the footer is before the last four bytes.
            needed = int.from_bytes(end[-8:-4], "little") + 8
            end = self._end(name, needed) if needed > len(end) else end
        try:
            found: Mapping[bytes, bytes] = parquet.read_metadata(pa.BufferReader(end)).metadata or {}
        except pa.ArrowInvalid as error:
            raise unreadable(f"{self}/{name}", error) from error
        return found

    def touch(self, name: str) -> None:
        """Create an empty object."""
        import obstore

        with self._as_oserror(name):
            obstore.put(self._get(), name, b"")

    def draft(self, name: str, _: tuple[int, int]) -> BucketDraft:
        """Return a draft in memory."""
        return BucketDraft(self._put, name)

    def remove_drafts(self, chain: FileChain, *, below: tuple[int, int]) -> None:
        """Do nothing: a store has no drafts."""

    # ---- the store ----

    def _end(self, name: str, size: int) -> bytes:
        """Return the last `size` bytes of an object, or the whole object."""
        import obstore

        with self._as_oserror(name):
            return bytes(obstore.get(self._get(), name, options={"range": {"suffix": size}}).bytes())

    def _put(self, name: str, contents: bytes) -> bool:
        """Put an object; return False if the name is taken, possibly by this request after a lost response."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._as_oserror(name):
            try:
                # A multipart upload would ignore the condition.
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

        # An http:// endpoint allows connections without TLS.
        is_plain = str(self._options.get("endpoint", "")).startswith("http://")
        try:
            return S3Store.from_url(
                self._url, client_options={"allow_http": True} if is_plain else None, **self._options
            )
        except (BaseError, ValueError, TypeError) as refused:
            remedy = f"must be valid for {self._url}: {str(refused).partition(chr(10))[0]}"
            raise ConfigurationError("storage_options", sorted(self._options), remedy) from refused

    @contextmanager
    def _as_oserror(self, name: str) -> Iterator[None]:
        """Raise the errors of the store as OSError."""
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as refused:
            raise OSError(f"{self}/{name}: {str(refused).partition(chr(10))[0]}") from refused


def _before(prefix: str) -> str | None:
    """Return a name directly before all names with this prefix; None for the beginning."""
    return prefix[:-1] + chr(ord(prefix[-1]) - 1) + "~" if prefix else None


@dataclass(slots=True)
class BucketDraft:
    """An object in memory, until it is put."""

    put: Callable[[str, bytes], bool]
    name: str
    contents: bytes = b""

    def write(self, table: pa.Table, compression: str) -> None:
        """Write the file to memory."""
        import pyarrow as pa
        from pyarrow import parquet

        sink = pa.BufferOutputStream()
        parquet.write_table(table, sink, compression=compression)
        self.contents = sink.getvalue().to_pybytes()

    def publish(self) -> bool:
        """Put the object; return False if the name is taken."""
        return self.put(self.name, self.contents)

    def discard(self) -> None:
        """Release the memory."""
        self.contents = b""
