"""The work that every side does: the same event for all of them.

Standard library only, since the peers import it with a Python of their own.
"""

from __future__ import annotations

from typing import Any


def payload(number: int) -> dict[str, Any]:
    """Give an event as a payment provider sends it, 300 bytes as JSON."""
    return {
        "id": f"evt_{number:012d}",
        "type": "invoice.paid",
        "created": 1_790_000_000 + number,
        "livemode": False,
        "data": {
            "object": {
                "id": f"in_{number:014d}",
                "customer": "cus_Q8sX0p1LkdYw3n",
                "amount_paid": 129_900,
                "currency": "eur",
                "lines": 3,
                "status": "paid",
            }
        },
        "request": {"idempotency_key": "k-0123456789abcdef-0123456789"},
        "attempt": 1,
    }
