"""Kerberos for GSSAPI: tickets from a keytab or from the ticket cache, through python-gssapi (the extra `kerberos`).

The guardian's process also loads this module, so it imports only the standard library and gssapi.

With a keytab, the Kerberos library itself requests tickets, keeps them in memory for all consumers of the process with
the same keytab and principal, and replaces them after half of their lifetime. If the KDC does not respond then, the
present tickets are used until they expire. Without a keytab, the default ticket cache is read (KRB5CCNAME), which
`kinit`, or another program, has to renew.
"""

from __future__ import annotations

import gssapi

# Not from the package's `__init__`, which loads pydantic.
from consumer_membership.config.settings import KerberosSettings
from consumer_membership.errors import AuthenticationError, TransportError
from consumer_membership.wire.gssapi import Gssapi

#: Error codes of the Kerberos library after which a later attempt may succeed: KRB5_KDC_UNREACH and
#: KRB5_REALM_CANT_RESOLVE (krb5.h).
_UNREACHABLE = frozenset({-1765328228, -1765328164})
#: KRB5KRB_AP_ERR_TKT_EXPIRED and KRB5_FCC_NOFILE. With a keytab, tickets expire only if no KDC responds, and there is
#: no cache only if the keytab has no key of the principal.
_EXPIRED, _NO_CACHE = -1765328352, -1765328189


def kerberos_mechanism(kerberos: KerberosSettings, host: str) -> Gssapi:
    """Return the mechanism that authenticates one connection to this broker, once; may wait for the KDC.

    Raises:
        TransportError: no KDC responds, and there are no valid tickets.
        AuthenticationError: there are no tickets, and none can be obtained with the keytab.
    """
    try:
        context = gssapi.SecurityContext(
            name=gssapi.Name(f"{kerberos.service}@{host}", gssapi.NameType.hostbased_service),
            creds=_credentials(kerberos),
            usage="initiate",
            mech=gssapi.MechType.kerberos,
            flags=(gssapi.RequirementFlag.mutual_authentication, gssapi.RequirementFlag.integrity),
        )
        first = context.step()
    except gssapi.exceptions.GSSError as error:
        raise _failure(error, kerberos, host) from error
    return Gssapi(_Context(context), first or b"")


class _Context:
    """The library's context, with this package's errors."""

    def __init__(self, context: gssapi.SecurityContext) -> None:
        self._context = context

    @property
    def is_complete(self) -> bool:
        return bool(self._context.complete)

    def step(self, token: bytes) -> bytes:
        try:
            return self._context.step(token) or b""
        except gssapi.exceptions.GSSError as error:
            raise AuthenticationError(f"the broker's Kerberos token was rejected: {_text(error)}") from error

    def unwrap(self, message: bytes) -> bytes:
        try:
            return bytes(self._context.unwrap(message).message)
        except gssapi.exceptions.GSSError as error:
            raise AuthenticationError(f"the broker's GSSAPI message was rejected: {_text(error)}") from error

    def wrap(self, message: bytes) -> bytes:
        return bytes(self._context.wrap(message, encrypt=False).message)


def _credentials(kerberos: KerberosSettings) -> gssapi.Credentials:
    name = None
    if kerberos.principal is not None:
        name = gssapi.Name(kerberos.principal, gssapi.NameType.kerberos_principal)
    store = None
    if kerberos.keytab is not None:
        cache = f"MEMORY:consumer-membership:{kerberos.principal}:{kerberos.keytab}"
        store = {"client_keytab": kerberos.keytab, "ccache": cache}
    return gssapi.Credentials(usage="initiate", name=name, store=store, mechs=[gssapi.MechType.kerberos])


def _failure(error: gssapi.exceptions.GSSError, kerberos: KerberosSettings, host: str) -> TransportError:
    text, code, has_keytab = _text(error), _signed(error.min_code), kerberos.keytab is not None
    if code in _UNREACHABLE or (has_keytab and code == _EXPIRED):
        return TransportError(f"no Kerberos ticket: {text}; check that the KDC is up, and its address in krb5.conf")
    if has_keytab:
        if code == _NO_CACHE:
            text = "the keytab cannot be read, or has no key of the principal"
        fix = f"check sasl.kerberos.principal={kerberos.principal} and sasl.kerberos.keytab={kerberos.keytab}"
    else:
        fix = "run kinit, or set sasl.kerberos.keytab and sasl.kerberos.principal"
    return AuthenticationError(
        f"no Kerberos ticket for {kerberos.service}/{host}: {text}; {fix}, and sasl.kerberos.service.name if the "
        "brokers' principal has another name"
    )


def _signed(code: int) -> int:
    """Return an OM_uint32 as the Kerberos library's signed number."""
    return (code & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def _text(error: gssapi.exceptions.GSSError) -> str:
    """Return the Kerberos library's own text, without the general text of GSSAPI."""
    texts = error.get_all_statuses(error.min_code, is_maj=False)
    return "; ".join(dict.fromkeys(text.rstrip(".") for text in texts))
