"""How the text of a value is parsed."""

from __future__ import annotations

import pytest

from consumer_membership.config import ByDuration, OffsetReset, SecurityProtocol
from consumer_membership.config.settings import ListenAddress
from consumer_membership.config.values import parse_endpoints
from tests.config.builders import accepted, refused


@pytest.mark.parametrize(("given", "meant"), [(True, True), ("TRUE", True), (1, True), ("t", True), ("0", False)])
def test_booleans_are_parsed_as_in_librdkafka(given: object, meant: object) -> None:
    """Values are converted by str(), so True, "TRUE" and 1 mean the same."""
    assert accepted(enable_auto_commit=given).enable_auto_commit is meant


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("smallest", OffsetReset.EARLIEST),
        ("EARLIEST", OffsetReset.EARLIEST),
        ("beginning", OffsetReset.EARLIEST),
        ("largest", OffsetReset.LATEST),
        ("latest", OffsetReset.LATEST),
        ("end", OffsetReset.LATEST),
        ("error", OffsetReset.ERROR),
    ],
)
def test_offset_reset_accepts_all_names_of_librdkafka(given: str, meant: OffsetReset) -> None:
    """The old and the new names map to the same three policies."""
    assert accepted(auto_offset_reset=given).start_settings().reset is meant


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("P1D", 86_400_000),
        ("PT36H", 129_600_000),
        ("P2DT3H4M5.678S", 183_845_678),
        ("pt20.345s", 20_345),
        ("PT15M", 900_000),
        ("PT0S", 0),
        ("PT1,5S", 1_500),
        ("P1DT-6H", 64_800_000),
        ("-PT-1M", 60_000),
        ("PT1M-0.5S", 59_500),
        ("P999999999999D", 999_999_999_999 * 86_400_000),
    ],
)
def test_durations_are_parsed_as_in_java(text: str, milliseconds: int) -> None:
    """Days have 24 hours, and signs and letter case are free; the cases include `Duration.parse` examples."""
    config = accepted(auto_offset_reset=f"by_duration:{text}")
    assert config.start_settings().reset == ByDuration(milliseconds=milliseconds)
    assert config.fetcher_config()["auto.offset.reset"] == "error"


@pytest.mark.parametrize(
    "text", ["", ":", ":1D", ":P", ":PT", ":P1DT", ":P1M", ":P1W", ":P1Y", ":P0.5D", ":-PT1S", ":P-1D"]
)
def test_invalid_duration_raises_error_with_key_value_and_fix(text: str) -> None:
    """Java rejects weeks, months, years, fractions of days and negative durations; so does this package."""
    message = str(refused(auto_offset_reset=f"by_duration{text}"))
    assert f"auto.offset.reset='by_duration{text}'" in message
    assert "such as by_duration:P1D" in message


@pytest.mark.parametrize(("milliseconds", "moment_ms"), [(0, 5_000), (1_500, 3_500), (6_000, 0)])
def test_by_duration_timestamp_is_now_minus_duration(milliseconds: int, moment_ms: int) -> None:
    """The timestamp is never negative, because -1 and -2 mean the ends of a log to a broker."""
    assert ByDuration(milliseconds=milliseconds).moment_ms(5.0004) == moment_ms


@pytest.mark.parametrize(
    ("text", "endpoints"),
    [
        ("a", (("a", 9092),)),
        ("PLAINTEXT://a:1, b:2,", (("a", 1), ("b", 2))),
        ("[::1]:5,10.0.0.1", (("::1", 5), ("10.0.0.1", 9092))),
        ("a:1/,PLAINTEXT://b:2/path/to,c/", (("a", 1), ("b", 2), ("c", 9092))),
        ("", ()),
    ],
)
def test_endpoints_are_parsed_as_in_librdkafka(text: str, endpoints: object) -> None:
    """Protocol and port are optional, an IPv6 address is in brackets, and a path is ignored."""
    assert parse_endpoints(text, SecurityProtocol.PLAINTEXT) == endpoints


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("0.0.0.0:8080", "0.0.0.0", 8080),  # noqa: S104 - read, not listened at
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("[::]:8080", "::", 8080),
        ("[fe80::1%eth0]:65535", "fe80::1%eth0", 65535),
        (" localhost:8080 ", "localhost", 8080),
    ],
)
def test_probe_address_parses_host_and_port(text: str, host: str, port: int) -> None:
    """An IPv6 host is in brackets; str() returns the address as it was given."""
    found = accepted(health_http_address=text).probe_settings()
    assert (found.address, found.file, found.are_wanted) == (ListenAddress(host=host, port=port), None, True)
    assert str(found.address) == text.strip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("8080", "'8080' is not HOST:PORT"),
        (8080, "'8080' is not HOST:PORT"),
        (":8080", "':8080' is not HOST:PORT"),
        ("::1:8080", "'::1:8080' is not HOST:PORT"),
        ("http://0.0.0.0:8080", "'http://0.0.0.0:8080' is not HOST:PORT"),
        ("0.0.0.0:8080/health", "'0.0.0.0:8080/health' is not HOST:PORT"),
        ("0.0.0.0:http", "'0.0.0.0:http' is not HOST:PORT"),
        ("a b:8080", "'a b:8080' is not HOST:PORT"),
        ("0.0.0.0:65536", "port 65536, outside 0..65535"),
    ],
)
def test_invalid_probe_address_is_rejected(text: object, message: str) -> None:
    """The error gives examples of valid addresses."""
    refusal = refused(health_http_address=text)
    assert refusal.key == "health.http.address"
    assert message in refusal.remedy
    assert "expected HOST:PORT, such as 0.0.0.0:8080, [::]:8080, or 127.0.0.1:0 for any free port" in refusal.remedy


def test_health_file_must_be_file_path() -> None:
    """The path must name a file; whether it is writable is checked when the consumer is created."""
    assert accepted(health_file="/tmp/health.json").probe_settings().file == "/tmp/health.json"  # noqa: S108 - not opened
    assert not accepted().probe_settings().are_wanted
    for text, message in (
        ("", "cannot be empty"),
        (" ", "cannot be empty"),
        ("/srv/", "a folder"),
        ("a/..", "a folder"),
    ):
        assert message in refused(health_file=text).remedy


def test_fetcher_config_has_no_probe_keys() -> None:
    """Librdkafka rejects unknown keys, so it receives no probe keys."""
    config = accepted(health_http_address="127.0.0.1:0", health_file="health.json").fetcher_config()
    assert not [key for key in config if key.startswith("health.")]
