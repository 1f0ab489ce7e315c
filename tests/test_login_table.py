"""The table of logins in docs/operating/tls-sasl-acls.md: each cell has a test, or the words "not run"."""

from __future__ import annotations

import ast
from itertools import chain

import pytest

from tests.support.documents import DOCS, ROOT

_COLUMNS = ("membership", "fetching", "guardian", "Spark", "CLI")
_NOT_RUN = "not run"

_SECURITY = "integration/test_security.py"
_OIDC = "integration/test_oidc.py"
_KERBEROS = "kerberos/logins.py"
#: Members that read and commit over a listener, which both kinds of connections do.
_GROUP = f"{_SECURITY}::test_members_share_a_group_over_each_listener"
_TEXTS = f"{_SECURITY}::test_encrypted_key_and_pem_texts_replace_files"
_KEYSTORE = f"{_SECURITY}::test_keystore_replaces_certificate_and_key_files"
_GUARDIAN = "integration/test_guardian_secured.py::test_guardian_leaves_over_the_connection_settings_of_a_killed_member"
_GUARDIAN_OVER_TLS = "runtime/guardian/test_secured_leaving.py::test_leave_over_tls_presents_the_members_certificate"
_GUARDIAN_KEYSTORE = "integration/test_guardian_secured.py::test_guardian_leaves_with_the_keystore_of_a_killed_member"
_GUARDIAN_REFUSED = "config/test_tls_and_sasl.py::test_crash_guardian_rejects_oauthbearer"
_PIPELINE = "spark/test_secured.py::test_check_drain_and_read_group_work_on_a_secured_cluster"
_PIPELINE_WITH_CERTIFICATE = "spark/test_secured.py::test_drain_and_read_group_take_a_client_certificate_as_text"
_PIPELINE_WITH_OIDC = "spark/test_secured.py::test_drain_and_read_group_take_tokens_of_an_identity_provider"
_LIST = "cli/test_secured.py::test_list_connects_over_each_listener"
_KEYTAB = f"{_KERBEROS}::test_member_with_a_keytab_joins_reads_and_commits"
_WITHOUT_GSSAPI = "runtime/application/test_handle.py::test_handle_without_gssapi_names_the_mechanism_and_the_fix"
_TOKEN = f"{_OIDC}::test_member_reads_with_one_token_for_both_kinds_of_connections"
_IN_KEYCLOAK = "integration/test_keycloak.py"
_KEYCLOAK = f"{_IN_KEYCLOAK}::test_member_joins_and_reads_with_one_token_of_keycloak"
_ASSERTION_OF_KEYCLOAK = f"{_IN_KEYCLOAK}::test_member_joins_and_reads_with_a_token_of_keycloak_for_an_assertion"
_COMMAND_WITH_KEYCLOAK = f"{_IN_KEYCLOAK}::test_command_line_takes_the_keys_of_keycloak"
_PIPELINE_WITH_KEYCLOAK = "spark/test_secured.py::test_drain_and_read_group_take_tokens_of_keycloak"
_REFUSED_KEYS = "config/test_tls_and_sasl.py::test_invalid_sasl_keys_are_rejected"
_COMMAND_WITH_OIDC = f"{_OIDC}::test_command_line_takes_the_keys_of_both_grants"
_ASSERTION = f"{_OIDC}::test_member_reads_with_a_token_for_an_assertion"

#: The tests of each row, in the order of the columns; empty: not run.
TESTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "TLS with a client certificate in files": ((_GROUP,), (_GROUP,), (_GUARDIAN,), (_PIPELINE,), (_LIST,)),
    "TLS with a client certificate as text": (
        (_TEXTS,),
        (_TEXTS,),
        (_GUARDIAN_OVER_TLS,),
        (_PIPELINE_WITH_CERTIFICATE,),
        ("cli/test_secured.py::test_list_takes_certificates_as_text",),
    ),
    "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512": ((_GROUP,), (_GROUP,), (_GUARDIAN,), (_PIPELINE,), (_LIST,)),
    "GSSAPI (Kerberos)": (
        (_KEYTAB, f"{_KERBEROS}::test_member_with_a_ticket_cache_joins_and_reads"),
        (_KEYTAB, _WITHOUT_GSSAPI),
        (f"{_KERBEROS}::test_guardian_leaves_with_the_members_keytab",),
        (f"{_KERBEROS}::test_spark_tasks_log_in_with_the_keytab",),
        (f"{_KERBEROS}::test_command_line_takes_the_keys_of_kerberos",),
    ),
    "TLS with a keystore": (
        (_KEYSTORE,),
        (_KEYSTORE,),
        (_GUARDIAN_KEYSTORE,),
        ("spark/test_secured.py::test_drain_and_read_group_take_a_keystore",),
        ("cli/test_secured.py::test_list_takes_a_keystore",),
    ),
    "OAUTHBEARER with client credentials": (
        (_TOKEN, _KEYCLOAK),
        (_TOKEN, _KEYCLOAK),
        (_GUARDIAN_REFUSED,),
        (_PIPELINE_WITH_OIDC, _PIPELINE_WITH_KEYCLOAK),
        (_COMMAND_WITH_OIDC, _COMMAND_WITH_KEYCLOAK, f"{_OIDC}::test_group_admin_gets_its_token_from_the_provider"),
    ),
    "OAUTHBEARER with an assertion": (
        (_ASSERTION, _ASSERTION_OF_KEYCLOAK),
        (_ASSERTION, _ASSERTION_OF_KEYCLOAK),
        (_GUARDIAN_REFUSED,),
        (_PIPELINE_WITH_OIDC, _PIPELINE_WITH_KEYCLOAK),
        (_COMMAND_WITH_OIDC, _COMMAND_WITH_KEYCLOAK),
    ),
    "OAUTHBEARER on a machine of Azure": ((), (), (_GUARDIAN_REFUSED,), (), ()),
    "OAUTHBEARER with AWS's IAM": ((_REFUSED_KEYS,),) * len(_COLUMNS),
    "OAUTHBEARER with a callback": (
        (_GROUP,),
        (_GROUP,),
        (_GUARDIAN_REFUSED,),
        (_PIPELINE,),
        ("cli/test_secured.py::test_list_without_a_callback_names_oauth_cb",),
    ),
}


def cells() -> dict[str, list[str]]:
    """Return the five cells of each row by the mechanism."""
    text = (DOCS / "operating/tls-sasl-acls.md").read_text()
    section = text.partition("## Every login\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    assert all(len(row) == 2 + len(_COLUMNS) and all(row) for row in rows)
    return {row[0]: row[2:] for row in rows[2:]}


def test_each_cell_of_the_login_table_is_shown_by_a_test_or_marked() -> None:
    """The table and the mapping have the same rows, and exactly the cells without a test are marked."""
    found = cells()
    assert sorted(found) == sorted(TESTS)
    for mechanism, row in found.items():
        for column, cell, tests in zip(_COLUMNS, row, TESTS[mechanism], strict=True):
            assert (_NOT_RUN in cell) == (not tests), f"{mechanism}, {column}: {cell}"


@pytest.mark.parametrize("place", sorted(set(chain.from_iterable(chain.from_iterable(TESTS.values())))))
def test_each_named_test_exists(place: str) -> None:
    """The tests that the mapping names exist."""
    path, _, name = place.partition("::")
    tree = ast.parse((ROOT / "tests" / path).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
