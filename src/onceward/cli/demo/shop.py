"""The shop of the story: an ordinary Onceward app.

Stripe tells of paid orders, and each is charged at the payment process over HTTP and gets a
receipt. GitHub tells of pushes and releases, and each is deployed. Served as
``onceward serve onceward.cli.demo.shop:app``; where things are comes from the environment.
"""

from __future__ import annotations

import json
import os
import secrets
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path

from onceward import AUTO, App, Context, Event, IdempotencyKey, Retry
from onceward.cli.demo.sabotage import without_dedup
from onceward.sources import GitHub, Stripe

PAYMENTS_URL = os.environ.get("SHOP_PAYMENTS_URL", "http://127.0.0.1:8001")
FOLDER = Path(os.environ.get("SHOP_FOLDER", "."))
NOBODYS = secrets.token_urlsafe()  # where none is configured, every delivery is refused
BREAK = os.environ.get("SHOP_BREAK", "")  # set by `onceward demo --break` to show what would be missed

app = App()
stripe = app.source(Stripe(secrets=os.environ.get("SHOP_STRIPE_SECRET", NOBODYS)))
github = app.source(GitHub(secrets=os.environ.get("SHOP_GITHUB_SECRET", NOBODYS)))
if BREAK == "no-dedup":
    without_dedup(stripe, github)


@dataclass
class Charge:
    """What the payment process answers."""

    id: str
    order: str
    amount: int
    currency: str


@app.step(retry=Retry(max_tries=8), timeout="20s")
def charge_card(order: str, amount: int, currency: str, *, idempotency_key: IdempotencyKey = AUTO) -> Charge:
    """Take the money. The key is the same on every try, so that asking twice charges once."""
    headers = {"Content-Type": "application/json"}
    if BREAK != "no-key":
        headers["Idempotency-Key"] = idempotency_key
    body = json.dumps({"order": order, "amount": amount, "currency": currency}).encode()
    request = urllib.request.Request(f"{PAYMENTS_URL}/charges", body, headers)  # noqa: S310 (our own URL)
    with urllib.request.urlopen(request, timeout=15) as reply:  # noqa: S310
        return Charge(**json.load(reply))


def write_receipt(charge: Charge, number: uuid.UUID) -> str:
    """Write the receipt under the order's name, so that writing it again changes nothing."""
    return write(f"receipt-{charge.order}.json", {"number": str(number), "charge": charge.id})


def build(version: str) -> str:
    """Stand in for a build."""
    return f"shop-{version}.tar.gz"


def write(name: str, content: dict[str, str]) -> str:
    """Replace a file of the shop's folder as a whole."""
    path = FOLDER / name
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(content))
    draft.replace(path)
    return name


@app.workflow(on=stripe["checkout.session.completed"])
async def fulfil(ctx: Context, event: Event) -> str:
    """Charge a paid order and write its receipt."""
    session = event.payload["data"]["object"]
    order, amount, currency = session["client_reference_id"], session["amount_total"], session["currency"]
    charge = await ctx.step.run("charge card", charge_card, order, amount, currency)
    number = await ctx.step.uuid("receipt number")  # drawn once and saved
    return await ctx.step.run("write receipt", write_receipt, charge, number)


@app.workflow(on=[github["push"], github["release.published"]])
async def deploy(ctx: Context, event: Event) -> str:
    """Build what was pushed or released, wait, and put it out."""
    release = event.payload.get("release")
    version = release["tag_name"] if release else event.payload["after"][:12]
    archive = await ctx.step.run("build", build, version)
    await ctx.step.sleep("let it settle", "400ms")  # costs a row, and the crash does not lengthen it
    return await ctx.step.run("put out", write, f"deployed-{version}.json", {"archive": archive})
