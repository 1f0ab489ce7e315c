"""How the text of a value is read."""

from __future__ import annotations

import pytest

from consumer_membership.config import ByDuration, OffsetReset, SecurityProtocol
from consumer_membership.config.settings import ListenAddress
from consumer_membership.config.values import parse_endpoints
from tests.config.builders import accepted, refused


@pytest.mark.parametrize(("given", "meant"), [(True, True), ("TRUE", True), (1, True), ("t", True), ("0", False)])
def test_booleans_are_read_as_librdkafka_reads_them(given: object, meant: object) -> None:
    """Values go through str(), so True, "TRUE" and 1 are the same."""
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
def test_offset_reset_knows_all_words_of_librdkafka(given: str, meant: OffsetReset) -> None:
    """Old and new words mean the same three things."""
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
def test_durations_are_read_as_java_reads_them(text: str, milliseconds: int) -> None:
    """Days have 24 hours, signs and cases of letters do not matter; the examples of `Duration.parse` among them."""
    config = accepted(auto_offset_reset=f"by_duration:{text}")
    assert config.start_settings().reset == ByDuration(milliseconds=milliseconds)
    assert config.fetcher_config()["auto.offset.reset"] == "error"


@pytest.mark.parametrize(
    "text", ["", ":", ":1D", ":P", ":PT", ":P1DT", ":P1M", ":P1W", ":P1Y", ":P0.5D", ":-PT1S", ":P-1D"]
)
def test_wrong_duration_names_key_value_and_remedy(text: str) -> None:
    """What Java refuses: weeks, months and years, fractions of days, and what is in the future."""
    said = str(refused(auto_offset_reset=f"by_duration{text}"))
    assert f"auto.offset.reset='by_duration{text}'" in said
    assert "such as by_duration:P1D" in said


@pytest.mark.parametrize(("milliseconds", "moment_ms"), [(0, 5_000), (1_500, 3_500), (6_000, 0)])
def test_moment_is_now_minus_the_duration(milliseconds: int, moment_ms: int) -> None:
    """And never before 1970: -1 and -2 are the ends of a log to a broker."""
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
def test_endpoints_are_read_as_librdkafka_reads_them(text: str, endpoints: object) -> None:
    """Protocol and port may be left out, an IPv6 address stands in brackets, a path says nothing."""
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
def test_address_of_probes_is_host_and_port(text: str, host: str, port: int) -> None:
    """In brackets where it has colons of its own; it is written again as it was."""
    found = accepted(health_http_address=text).probe_settings()
    assert (found.address, found.file, found.are_wanted) == (ListenAddress(host=host, port=port), None, True)
    assert str(found.address) == text.strip()


@pytest.mark.parametrize(
    ("text", "words"),
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
def test_address_that_is_none_is_refused(text: object, words: str) -> None:
    """With examples of what to give."""
    refusal = refused(health_http_address=text)
    assert refusal.key == "health.http.address"
    assert words in refusal.remedy
    assert "give HOST:PORT, such as 0.0.0.0:8080, [::]:8080, or 127.0.0.1:0 for any free port" in refusal.remedy


def test_file_of_probes_is_a_path() -> None:
    """Whether it can be written is seen when the consumer is made."""
    assert accepted(health_file="/tmp/health.json").probe_settings().file == "/tmp/health.json"  # noqa: S108 - as said
    assert not accepted().probe_settings().are_wanted
    for text, words in (("", "cannot be empty"), (" ", "cannot be empty"), ("/tmp/", "a folder"), ("a/..", "a folder")):  # noqa: S108
        assert words in refused(health_file=text).remedy


def test_keys_of_probes_are_no_business_of_librdkafkas() -> None:
    """It refuses what it does not know."""
    config = accepted(health_http_address="127.0.0.1:0", health_file="health.json").fetcher_config()
    assert not [key for key in config if key.startswith("health.")]
