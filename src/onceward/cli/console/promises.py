"""The promises by their numbers, and how each is watched; the page on numbers in the docs says the same."""

from __future__ import annotations

ROWS = "rows"
"""Rows of a store can show that the promise is broken."""

PROMISES: dict[str, tuple[str, str]] = {
    "I1": (
        'An event of one namespace, source and id exists once, and has at most one original run per workflow, under any interleaving',
        'rows',
    ),
    "I2": (
        'Every delivery of an event gets the same runs back and a 2xx, also the loser of a race',
        'rows, test',
    ),
    "I3": (
        'A step whose result is saved never begins again in that generation',
        'test',
    ),
    "I4": (
        'A step has one record; once it has an outcome it never changes',
        'rows, change',
    ),
    "I5": (
        'A write with an old fence changes nothing; fences never fall',
        'rows, change',
    ),
    "I6": (
        'What was answered 2xx exists after a kill, and after a power loss with the default settings',
        'rows, change, test',
    ),
    "I7": (
        'What was not answered 2xx left nothing, or something that redelivery turns into one run',
        'test',
    ),
    "I8": (
        'No run is stuck: it has a holder that lives, a time at which it wakes, a run that it waits for, or a named hold',
        'rows',
    ),
    "I9": (
        'A run ends once. Only a verb leaves an end, and adds an attempt or a generation and an entry in the audit',
        'rows, change',
    ),
    "I10": (
        'Events and runs made inside a run exist if and only if their step is saved',
        'rows',
    ),
    "I11": (
        'The end of a called run reaches its parent once, and is the same at every attempt',
        'rows',
    ),
    "I12": (
        'Whoever ends what a run waits for wakes it: no wake-up is lost',
        'rows',
    ),
    "I13": (
        "A wait ends in one way, with an event, with its time or with its run, and that is saved before the code sees it",
        "rows",
    ),
    "I14": (
        'A sleep never ends before its deadline, and nothing moves the deadline',
        'rows, change',
    ),
    "I15": (
        'A step has no more tries than its policy allows, counted durably; delays stay in their bounds',
        'rows, test',
    ),
    "I16": (
        'A run that takes its process down is held after a bounded number of times; its neighbours go on',
        'rows, test',
    ),
    "I17": (
        'The reply to a cancel is true: after it no step begins but clean-up, and the run never ends well',
        'change, test',
    ),
    "I19": (
        'A replay leaves the old run as it was; a restart runs every step in a new generation and keeps the old records',
        'rows, change',
    ),
    "I20": (
        "Code that no longer fits the history stops the run, with the step's name, without running again what is done",
        'test',
    ),
    "I21": (
        'A process without a workflow leaves its runs alone',
        'test',
    ),
    "I22": (
        'What a step returned and what a later attempt reads are equal and of one type; what cannot be is refused by its place',
        'test',
    ),
    "I23": (
        'Nothing of one namespace shows in another',
        'rows, test',
    ),
    "I24": (
        'With a secret, nothing is stored unless a signature over the raw bytes verifies, compared in constant time',
        'test',
    ),
    "I25": (
        'Reading stored data never runs code',
        'test',
    ),
    "I26": (
        'Every input is bounded, and a waiting run costs a row',
        'test',
    ),
    "I27": (
        'Secrets and payloads are in no log; what strangers write moves no terminal',
        'test',
    ),
    "I29": (
        'A process that is asked to stop charges no attempt and gives everything back',
        'test',
    ),
    "I30": (
        'A migration happens whole or not at all; an older Onceward refuses a newer store',
        'test',
    ),
}  # fmt: skip
"""What is promised, and what watches it: ``rows``, ``change`` (how rows change), ``test``; none yet: empty."""
