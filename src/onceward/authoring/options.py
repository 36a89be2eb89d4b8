"""What a step or a workflow may be told about failing and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from onceward.authoring.keys import KEY_SCOPES, KeyScope
from onceward.core import errors
from onceward.core.duration import Duration, to_ms
from onceward.core.effects import EffectName, StepEffect, effect_of
from onceward.core.model import Millis
from onceward.core.retry import Retry
from onceward.core.rules import ACTIVE, CLASHES, EVER, NO_RULES, STALE, WINDOW, Rules, checked_place
from onceward.core.shown import shown
from onceward.core.texts import checked_name

DEFAULT_STEP_RETRY = Retry()
DEFAULT_RUN_RETRY = Retry(max_tries=1)
"""A run has one attempt by default: its steps already retry, and code between steps that failed
once fails again. Lost holders are not counted here."""


Check: TypeAlias = Callable[..., Any]
"""Looks whether a step took effect: gets its arguments, gives `Happened` or `DidNotHappen`."""

Unknown: TypeAlias = Literal["retry", "ask"] | Check
"""What becomes of a step that began and has no saved end."""

UNKNOWN = ("retry", "ask")

TAGS_MAX = 20
"""Tags of one workflow."""


@dataclass(frozen=True, slots=True)
class Database:
    """Where transactions of the user's are; made by `App.transactions`.

    Attributes:
        connect: what gives a connection; None means what the app was told.
        has_marker: it is not the store's database: a marker there says what was committed.
        insists: transactions run where a SQLite file could be damaged.
    """

    connect: Any
    has_marker: bool = False
    insists: bool = False

    @property
    def is_careful(self) -> bool:
        """Say whether its transactions wait where the store's SQLite file could be damaged."""
        return not self.has_marker and not self.insists


APP_DATABASE = Database(None)


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How one step is tried.

    Attributes:
        retry: its policy.
        timeout_ms: how long one try may take.
        key_scope: what its idempotency key belongs to.
        key_memory_ms: how long the receiver remembers the key, if that is known.
        effect: what running it again does; by default what its kind of step does.
        recorded: what of this its records say, for plans; empty by default, so that it costs nothing.
        unknown: what becomes of it when it began and has no saved end; None for running it again, or
            for failing where it may be tried once only.
        undo: what gives back what it did.
        database: where its body and its checkpoint are one transaction; None for an ordinary step.
        if_unknown: what an unknown outcome leads to; that of a transaction can be looked up.
        keeps_start: whether that a try begins is saved before it does.
    """

    retry: Retry = DEFAULT_STEP_RETRY
    timeout_ms: Millis | None = None
    key_scope: KeyScope = "step"
    key_memory_ms: Millis | None = None
    effect: EffectName | None = None
    unknown: Unknown | None = None
    undo: Undo | None = None
    recorded: dict[str, Any] = field(init=False, compare=False, default_factory=dict)
    database: Database | None = None
    if_unknown: Literal["retry", "fail", "ask", "check"] = field(init=False, compare=False, default="retry")
    keeps_start: bool = field(init=False, compare=False, default=False)

    @property
    def kind(self) -> str:
        """Give the kind of its record."""
        return "run" if self.database is None else "transaction"

    def __post_init__(self) -> None:
        """Refuse what is no policy before it is asked for one, which is when the step fails."""
        check_retry(self.retry, "step")
        if self.key_scope not in KEY_SCOPES:
            raise errors.ConfigError(
                f"The key_scope of a step cannot be {shown(self.key_scope)}.",
                means="It says what the step's idempotency key belongs to.",
                todo='Write key_scope="step" for a key of this run\'s generation, or key_scope="business" '
                "for one that a restart and a replay hand out again.",
            )
        if self.effect is not None and self.effect not in tuple(StepEffect):
            raise errors.ConfigError(
                f"The effect of a step cannot be {shown(self.effect)}.",
                means="It says what running the step again does, for whoever plans a restart.",
                todo='Write effect="pure" for one that only computes or reads, effect="own_database" for one '
                'that writes to your own database only, or effect="outside", which is the default.',
            )
        if self.effect is not None and effect_of("run", None) != self.effect:
            self.recorded["effect"] = self.effect
        if self.key_scope != "step":
            self.recorded["key_scope"] = self.key_scope
        if self.key_memory_ms is not None:
            self.recorded["key_memory_ms"] = self.key_memory_ms
        if self.unknown is not None and self.unknown not in UNKNOWN and not callable(self.unknown):
            raise errors.ConfigError(
                f"The unknown of a step cannot be {shown(self.unknown)}.",
                means="It says what becomes of a step that began and has no saved end.",
                todo='Write unknown="retry" to run it again, unknown="ask" to ask a person, or give a function '
                "that looks whether it took effect.",
            )

        # Asked at every step, so said once.
        object.__setattr__(self, "if_unknown", self._if_unknown())
        is_undone = self.undo is not None and self.database is None
        object.__setattr__(self, "keeps_start", self.if_unknown != "retry" or is_undone)

    def _if_unknown(self) -> Literal["retry", "fail", "ask", "check"]:
        if self.database is not None:
            return "retry"
        if self.unknown is None:
            # How long its receiver knows the key was said: until then it is safe to run again.
            return "fail" if self.retry.is_once and self.key_memory_ms is None else "retry"
        return "check" if callable(self.unknown) else self.unknown


@dataclass(frozen=True, slots=True)
class Undo:
    """What gives back what a step did.

    Attributes:
        function: called with the step's result, and by name with those of its arguments that it takes.
        options: how it is tried.
    """

    function: Callable[..., Any]
    options: StepOptions = field(default_factory=StepOptions)


def key_memory_of(key_memory: Duration | None, whose: str) -> Millis | None:
    """Give a ``key_memory=`` in milliseconds.

    Raises:
        ConfigError: it is no length of time.
    """
    return None if key_memory is None else to_ms(key_memory, what=f"key_memory of {whose}")


def checked_tags(tags: Any) -> tuple[str, ...]:
    """Give the ``tags=`` of a workflow, each once.

    Raises:
        ConfigError: they are no list, there are too many, or one cannot be a name.
    """
    if isinstance(tags, str) or not isinstance(tags, (list, tuple, set, frozenset)) or len(tags) > TAGS_MAX:
        raise errors.ConfigError(
            f"The tags of a workflow cannot be {shown(tags)}.",
            means=f"They are up to {TAGS_MAX} words by which people find its runs.",
            todo='Write a list, for example tags=["billing"].',
        )
    return tuple(sorted({checked_name(tag, "tag") for tag in tags}))


def check_retry(retry: object, whose: str) -> None:
    """Refuse a ``retry=`` that is no policy, such as a number.

    Raises:
        ConfigError: it is no `Retry`.
    """
    if isinstance(retry, Retry):
        return
    number = retry if type(retry) is int and retry > 0 else 3
    raise errors.ConfigError(
        f"The retry of a {whose} cannot be {shown(retry)}.",
        means="It is a policy, of which the number of tries is a part.",
        todo=f"Write Retry(max_tries={number}).",
    )


DEFAULT_OPTIONS = StepOptions()


def rules_of(
    *, version: Any, stale: Any, key: Any, once: Any, clash: Any, on_redelivery: str
) -> tuple[Rules, Callable[[Any], Any] | None]:
    """Give a workflow's rules, and the function that fetches the current state, if one was given.

    Raises:
        ConfigError: something is no place in an event, or nothing that there is, or does not go with
            the others.
    """
    ordered, fetch = _ordering(version, stale)
    keyed = _keying(key, once, clash)
    if on_redelivery not in ("nothing", "retry"):
        raise errors.ConfigError(
            f"The on_redelivery of a workflow cannot be {shown(on_redelivery)}.",
            means="It says what a redelivery does to a run that failed.",
            todo='Write on_redelivery="nothing" or on_redelivery="retry".',
        )
    return replace(
        keyed,
        version=ordered.version,
        drops_stale=ordered.drops_stale,
        retries_on_redelivery=on_redelivery == "retry",
    ), fetch


def _keying(key: Any, once: Any, clash: Any) -> Rules:
    """Give the rules of ``key=``, ``once=`` and ``clash=``; only the pairs of RULINGS 14."""
    if key is None:
        if once is None and clash is None:
            return NO_RULES
        raise errors.ConfigError(
            "A workflow has once= or clash= and no key=.",
            means="Nothing tells which of its runs are about the same.",
            todo='Name the place of the key, for example key=event.payload["order"].',
        )
    once, clash = once or EVER, clash or "return"
    window_ms = None
    if once not in (EVER, ACTIVE):
        window_ms, once = to_ms(once, what="once of a workflow"), WINDOW
    if clash not in CLASHES[once]:
        allowed = " or ".join(f'"{one}"' for one in CLASHES[once])
        raise errors.ConfigError(
            f"A workflow with once={shown(once)} cannot have clash={shown(clash)}.",
            means="A key that is held for ever never becomes free, so nothing can wait for it."
            if once == EVER and clash in CLASHES[ACTIVE]
            else "It says what becomes of an event whose key another run holds.",
            todo=f'Write clash={allowed}, or once="active".',
        )
    place = checked_place(key, "key")
    return Rules(key=place, once=once, window_ms=window_ms, clash=clash)


def _ordering(version: Any, stale: Any) -> tuple[Rules, Callable[[Any], Any] | None]:
    """Give the rules of ``version=`` and ``stale=``, and the function that fetches, if one was given.

    Raises:
        ConfigError: *version* is no place in an event, *stale* is nothing that there is, or stands alone.
    """
    if version is None:
        if stale is None:
            return NO_RULES, None
        raise errors.ConfigError(
            f"A workflow has stale={shown(stale)} and no version=.",
            means="Nothing tells which of two events is newer.",
            todo='Name the place of the version, for example version=event.payload["updated_at"].',
        )
    stale = STALE[0] if stale is None else stale
    fetch = None if isinstance(stale, str) or not callable(stale) else stale
    if fetch is None and stale not in STALE:
        raise errors.ConfigError(
            f"The stale of a workflow cannot be {shown(stale)}.",
            means="It says what becomes of an event that is older than one of the same subject.",
            todo='Write stale="drop", stale="mark", or a function of the event that fetches the current state.',
        )
    return Rules(version=checked_place(version, "version"), drops_stale=stale == STALE[0]), fetch
