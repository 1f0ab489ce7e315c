"""The example for Amazon MSK: its token is checked without a network, down to the signature."""

from __future__ import annotations

import hashlib
import hmac
import runpy
import time
from base64 import urlsafe_b64decode
from functools import reduce
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from consumer_membership.config.tokens import SharedTokens
from consumer_membership.wire.sasl import OAuthBearer
from tests.support.documents import ROOT

KEY_ID, SECRET = "AKIDEXAMPLE", "an-example-secret"
REGION = "eu-west-1"


def signature(host: str, query: list[tuple[str, str]], secret: str) -> str:
    """Return the signature of a URL with this query, as AWS specifies it (Signature Version 4)."""
    values = dict(query)
    date, region, service, end = values["X-Amz-Credential"].split("/")[1:]
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query)
    joined = "&".join(f"{name}={value}" for name, value in pairs)
    request = "\n".join(["GET", "/", joined, f"host:{host}", "", "host", hashlib.sha256(b"").hexdigest()])
    scope = f"{date}/{region}/{service}/{end}"
    hashed = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{values['X-Amz-Date']}\n{scope}\n{hashed}"
    parts = (date, region, service, end, text)
    return reduce(lambda key, part: hmac.digest(key, part.encode(), "sha256"), parts, f"AWS4{secret}".encode()).hex()


def test_msk_iam(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is a signed URL with the action, region, expiry and signature that MSK verifies."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    callback = runpy.run_path(str(ROOT / "examples" / "msk_iam.py"))["token_callback"](REGION)
    token = SharedTokens(callback, None).token()
    url = urlsplit(urlsafe_b64decode(token.value + "=" * (-len(token.value) % 4)).decode())
    query = dict(parse_qsl(url.query))
    assert url.netloc == f"kafka.{REGION}.amazonaws.com"
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Credential"].startswith(f"{KEY_ID}/")
    assert f"/{REGION}/kafka-cluster/aws4_request" in query["X-Amz-Credential"]
    assert 800 < token.expires_at - time.time() <= 900
    signed = [(name, value) for name, value in query.items() if name not in {"X-Amz-Signature", "User-Agent"}]
    assert query["X-Amz-Signature"] == signature(url.netloc, signed, SECRET)
    assert query["X-Amz-Signature"] != signature(url.netloc, signed, "another-secret")
    assert OAuthBearer(token.value, token.extensions).begin().startswith(b"n,,\x01auth=Bearer ")
