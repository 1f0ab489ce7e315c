"""The table of who passes what, with a row for each of Kafka's tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tests.kafkatest.clients import Client


def markdown(verdicts: Iterable[tuple[str, Client, bool]], clients: Sequence[Client]) -> str:
    """Return a Markdown table; each cell has the number of passed cases and of all cases that the client supports."""
    counts: dict[str, dict[Client, tuple[int, int]]] = {}
    for test, client, is_passed in verdicts:
        passed, total = counts.setdefault(test, {}).get(client, (0, 0))
        counts[test][client] = (passed + is_passed, total + 1)
    rows = [f"| test | {' | '.join(clients)} |", f"|---|{'---|' * len(clients)}"]
    for test, of_clients in counts.items():
        cells = [_cell(of_clients.get(client)) for client in clients]
        rows.append(f"| `{test}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cell(count: tuple[int, int] | None) -> str:
    return "-" if count is None else f"{count[0]} of {count[1]}"
