"""One order, once: run it twice with the same number and see one run.

    python examples/orders.py 1001

Kill it while it packs and start it again: the charge is not made a second time.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from onceward import AUTO, App, Context, IdempotencyKey, Retry

app = App("sqlite:///orders.sqlite")


@dataclass
class Charge:
    order: str
    cents: int
    key: str


@app.step(retry=Retry(max_tries=8), timeout="30s")
async def charge_card(order: str, cents: int, *, idempotency_key: IdempotencyKey = AUTO) -> Charge:
    # A real one sends the key to the payment service, which then charges once however often it is asked.
    print(f"charging {cents} cents for order {order}")
    return Charge(order, cents, idempotency_key)


def pack(order: str) -> str:
    print(f"packing order {order}")
    return f"parcel-{order}"


@app.workflow()
async def fulfil(ctx: Context, order: str, cents: int) -> str:
    charge = await charge_card(order, cents)
    await ctx.step.sleep("packing time", "2s")
    parcel = await ctx.step.run("pack", pack, order)
    await ctx.step.emit("shipped", "order.shipped", {"order": charge.order, "parcel": parcel})
    return parcel


@app.workflow(on="order.shipped")
async def thank(ctx: Context, shipped: dict[str, str]) -> None:
    await ctx.step.run("mail", print, f"thank you for order {shipped['order']}")


async def main(order: str) -> str:
    async with app:
        run = await app.start(fulfil, order, 1990, id=order)
        print(f"{run.run_id}: {'known already' if run.is_duplicate else 'new'}")
        return await run.result(timeout="1m")


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "1001")))
