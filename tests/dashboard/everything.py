"""A stub console with everything in it, filled by one function of texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from onceward.console import views
from onceward.core.states import RunState, Verb
from tests.dashboard.filling import filled
from tests.dashboard.stub import StubConsole

RUN_ID = "0192f0c4-0000-7000-8000-00000000c0de"
DELIVERY_ID = "0192f0c4-0000-7000-8000-0000000de11e"


def everything(text: Callable[[str], str]) -> StubConsole:
    """Give a console whose every text is what *text* gives for its name, except where only ids can be."""

    def own(name: str) -> str:
        known = {"run_id": RUN_ID, "delivery_id": DELIVERY_ID, "after": "page", "next": "page"}
        return known.get(name) or text(name)

    def fill(kind: Any) -> Any:
        return filled(kind, own)

    runs = [
        msgspec.structs.replace(fill(views.RunSummary), run_id=f"{RUN_ID[:-2]}{index:02d}", state=state)
        for index, state in enumerate([*RunState, text("state")])
    ]
    run: views.RunDetail = fill(views.RunDetail)
    verbs = [
        views.VerbView(verb=verb, is_allowed=verb != Verb.DISMISS, reply=text("reply"), hint=text("hint"))
        for verb in Verb
    ]
    made = views.PromiseView(state="open", expires_at=fill(views.PromiseView).expires_at)
    steps = [
        msgspec.structs.replace(run.steps[0], state=state, origin=origin, generation=2, seq=seq, promise=made)
        for seq, (state, origin) in enumerate(
            [
                ("open", None),
                ("done", None),
                ("failed", None),
                ("done", text("origin")),
                (text("state"), None),
            ]
        )
    ]
    attempts = [
        msgspec.structs.replace(run.attempts[0], outcome=outcome, generation=2)
        for outcome in ("failed", text("outcome"))
    ]
    run = msgspec.structs.replace(
        run,
        run=msgspec.structs.replace(run.run, state="held", run_id=RUN_ID, generation=2, ended_at=None),
        shown_generation=2,
        verbs=verbs,
        steps=steps,
        attempts=attempts,
    )
    deliveries = [
        msgspec.structs.replace(fill(views.DeliveryView), outcome=outcome, body_base64=None)
        for outcome in ("accepted", "duplicate", "clash", "unparsed", text("outcome"))
    ]
    return StubConsole(
        overview=msgspec.structs.replace(fill(views.Overview), problems=runs),
        counts=fill(views.Counts),
        runs=views.Page(items=runs, next=text("next page")),
        run=run,
        events=views.Page(items=[fill(views.EventSummary)], next=text("next page")),
        event=msgspec.structs.replace(fill(views.EventDetail), runs=runs, deliveries=deliveries),
        deliveries=views.Page(items=deliveries, next=text("next page")),
        delivery=deliveries[0],
        redeliver={text("fact"): text("fact")},
        sources=[fill(views.SourceView)],
        refusals=[msgspec.structs.replace(fill(views.RefusalView), source=text("other source"))],
        workers=[fill(views.WorkerView)],
        notices=fill(views.NoticesView),
        workflows=[fill(views.WorkflowView)],
        audit=views.Page(items=[fill(views.AuditView)], next=text("next page")),
        plan={
            "token": text("token"),
            "warnings": [text("warning")],
            "outside_again": [text("step")],
            "steps": [
                {"step": text("step"), "fate": text("fate"), "effect": text("effect"), "keeps_key": True}
            ],
            "children": [{"run_id": text("run"), "workflow": text("workflow"), "fate": text("fate")}],
        },
        emit=fill(views.EmitReply),
        complete=views.ActionReply(run_id=RUN_ID, verb="complete", effect="completed", text=text("text")),
        act=views.ActionReply(run_id=RUN_ID, verb="retry", effect="new attempt", text=text("text")),
        bulk=msgspec.structs.replace(
            fill(views.BulkReply), matched=2, verb="retry", sample=runs, is_interrupted=False
        ),
    )


PAGES = [
    *(
        "",
        "runs",
        "runs?problems=1&error=x",
        "dead",
        "events",
        "emit",
        "emit?type=order.paid&source=stripe",
        "deliveries",
        "sources",
        "workers",
        "workflows",
    ),
    *("audit", "help", "search?q=nothing+like+it", f"runs/{RUN_ID}", f"deliveries/{DELIVERY_ID}"),
    f"runs/{RUN_ID}/complete",
    *(f"runs/{RUN_ID}/{verb}" for verb in Verb if verb != Verb.DISMISS),
    *("event?source=stripe&id=evt_1", "bulk/ask?verb=retry&problems=1", "runs?state=nonsense", "nowhere"),
]
"""Every page that can be asked for, and two that cannot."""
