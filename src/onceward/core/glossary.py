"""The words, one a thing: what each means, for the dashboard. The page of the docs says the same, with links."""

from __future__ import annotations

WORDS: dict[str, str] = {
    "source": "a provider of events; it verifies a request and reads events from it",
    "delivery": "one HTTP request that carried events; the same event can be delivered many times",
    "event": "an immutable fact: source, id, type, subject (what it is about), payload. Namespace, source and id together are unique",
    "namespace": "the wall between environments or customers in one store; a process serves one",
    "workflow": "a registered function with a name, triggers and policies",
    "run": "one durable execution of one workflow for one event; an event has none, one or several (one per subscribed workflow)",
    "generation": "a run's life between two restarts, counted from 1",
    "attempt": "one go at finishing a generation; grows when code fails or its holder is lost, not when a run sleeps or waits",
    "step": "a named unit of work inside a run whose outcome is saved; it has tries. In a loop its name and item= identify it",
    "checkpoint": "the saved record of a step's outcome",
    "lease, fence": "the time-limited right to advance a run; the number that grows with each lease and is checked by every write",
    "retry": "the next attempt of the same generation; checkpoints are kept",
    "restart": "the same run, a new generation: every step runs again that is not kept by name; the old records stay readable",
    "replay": "a new run of the same event; the old one does not change",
    "key": 'what a run is about, where a workflow has one run for each: "order 42"; never mixed up with the event\'s id',
    "idempotency key": "what a step hands to others with a request; the same on every try and attempt of a generation",
    "held": "a run that stopped for a person, with a named reason; it is answered and goes on",
    "undo": "give back what a done step did, the last one first, where a run fails for good or is cancelled",
    "transaction": "a step whose rows and checkpoint are one commit",
    "wait, promise": "a run's pause for an event; for a token that is completed once from outside",
    "cancel, dismiss": "end a run from outside, clean-up steps still run; take a failed run off the list of open problems",
    "plan": "what an action would do to a run, told before it is done",
    "bulk action": "one thing done to every run that a filter finds",
    "tag": "a word of a workflow by which its runs are found",
    "process": "what holds a lease and runs code: a worker, or a web process with the app embedded",
    "notice": "a signed request to an address of yours that a run failed or is held; owed until it is told or given up",
    "dead letter": "a failed or held run that nobody dismissed, or a delivery that could not be read",
}
"""A word, or two that belong together, with its meaning in a phrase; a test compares them with the docs."""

TOLD: dict[str, str] = {
    "accepted": "that it arrived: the event was stored before",
    "duplicate": "that it arrived: the event was there already, with the same runs",
    "clash": "that it arrived: the event was there already, with other content, which stays",
    "unparsed": "that it arrived: it is kept until its source can read it",
}
"""What the sender was told of a delivery, by its outcome."""
