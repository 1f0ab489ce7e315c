"""The broker side of SCRAM."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from hashlib import new

DIGESTS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class Server:
    """The broker side of SCRAM by RFC 5802, section 3; it stores two keys and no password."""

    def __init__(self, name: str, password: str, salt: bytes, iterations: int = 4096) -> None:
        self.digest, self.salt, self.iterations = DIGESTS[name], salt, iterations
        salted = self.hi(password.encode())
        self.stored_key = new(self.digest, self.hmac(salted, b"Client Key")).digest()
        self.server_key = self.hmac(salted, b"Server Key")
        self.username = ""
        self.nonce = self.bare = self.first_message = b""

    def hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self.digest)

    def hi(self, text: bytes) -> bytes:
        """Section 2.2: U1 xor U2 ... xor Ui."""
        block = self.hmac(text, self.salt + (1).to_bytes(4))
        total = int.from_bytes(block)
        for _ in range(self.iterations - 1):
            block = self.hmac(text, block)
            total ^= int.from_bytes(block)
        return total.to_bytes(len(block))

    def first(self, message: bytes, nonce: bytes) -> bytes:
        """Return the response to the client's first message, which also names the user."""
        header, self.bare = message[:3], message[3:]
        assert header == b"n,,"
        username, _, client_nonce = self.bare.removeprefix(b"n=").partition(b",r=")
        assert b"," not in username + client_nonce
        self.username = username.replace(b"=2C", b",").replace(b"=3D", b"=").decode()
        self.nonce = client_nonce + nonce
        self.first_message = b"r=%b,s=%b,i=%d" % (self.nonce, b64encode(self.salt), self.iterations)
        return self.first_message

    def final(self, message: bytes) -> bytes:
        """Return the response to the client's proof: a signature or an error."""
        without_proof, _, proof = message.partition(b",p=")
        if without_proof != b"c=" + b64encode(b"n,,") + b",r=" + self.nonce:
            return b"e=other-error"
        signed = b",".join([self.bare, self.first_message, without_proof])
        signature = self.hmac(self.stored_key, signed)
        key = bytes(left ^ right for left, right in zip(b64decode(proof), signature, strict=True))
        if new(self.digest, key).digest() != self.stored_key:
            return b"e=invalid-proof"
        return b"v=" + b64encode(self.hmac(self.server_key, signed))
