"""Registered workflows: a function with a name, triggers and policies."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, cast

import msgspec

from onceward.authoring.event import Event
from onceward.authoring.options import check_retry
from onceward.core import codec, errors, ids, json_plain
from onceward.core.annotations import parameter_annotation, return_annotation, signature_of
from onceward.core.model import Millis, WorkflowRow
from onceward.core.retention import Keep
from onceward.core.retry import Retry
from onceward.core.rules import NO_RULES, Rules
from onceward.core.shown import shown
from onceward.core.triggers import OWN, Trigger

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class _Arguments(msgspec.Struct):
    args: list[msgspec.Raw]
    kwargs: dict[str, msgspec.Raw] = {}


_decode_arguments = msgspec.json.Decoder(_Arguments).decode


@dataclass(frozen=True)
class Policies:
    """How a workflow's runs are tried, how long they may take, and which there are.

    Attributes:
        retry: how often the whole run is tried again.
        deadline_ms: how long a run may take.
        rules: what is asked of an event before there is a run.
        undoes_on_failure: what its steps did is undone when a run ends badly.
        fetch: fetches the current state of what the event is about, before the code begins.
        keep: how long its runs are kept when they are over; None leaves it to the app.
        tags: words by which people find its runs.
    """

    retry: Retry
    deadline_ms: Millis | None = None
    rules: Rules = NO_RULES
    fetch: Callable[[Event], Any] | None = None
    undoes_on_failure: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no policy before it is asked for one, which is when a run fails."""
        check_retry(self.retry, "workflow")

    keep: Keep | None = None
    tags: Sequence[str] = ()


_NO_CONTEXT = frozenset(
    {Event.__name__, "str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "set"}
)
"""Types that are certainly meant for something else than the context."""


def _last_name(annotation: object) -> str:
    """Give the last part of an annotation's name, also where it exists for type checkers only."""
    if isinstance(annotation, str):
        return annotation.strip("\"'").partition("[")[0].rpartition(".")[2]
    return str(getattr(annotation, "__name__", ""))


class Workflow(Generic[P, R]):
    """A function whose every run is durable; made by `App.workflow`.

    ``P`` are the parameters after the context, ``R`` the result.

    Args:
        function: async or plain, the context its first parameter.
        name: what identifies it in the store.
        triggers: what starts it.
        policies: how its runs are tried and how long they may take.

    Raises:
        ConfigError: the name cannot be used, or the function takes no parameters.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, triggers: Sequence[Trigger], policies: Policies
    ) -> None:
        self.function = function
        self.name = name
        self.triggers = tuple(triggers)
        self.policies = policies
        self.is_async = inspect.iscoroutinefunction(function)
        parameters = list(signature_of(function).parameters.values())
        self._check_context(parameters)
        self._parameters = parameters[1:]
        self.__name__ = getattr(function, "__name__", name)
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def _check_context(self, parameters: list[inspect.Parameter]) -> None:
        """Refuse a function that would take the context for something else."""
        ours, others = ("Context", "SyncContext") if self.is_async else ("SyncContext", "Context")
        right = f"`{'async def' if self.is_async else 'def'} {self.function.__name__}(ctx: {ours}, …)`"
        if not parameters:
            raise errors.ConfigError(
                f"The workflow {self.name!r} takes no parameters.",
                means="It must take the context first, to call steps with.",
                todo=f"Write {right}.",
            )
        first = parameters[0]
        written = _last_name(first.annotation)
        if written == others:
            raise errors.ConfigError(
                f"The workflow {self.name!r} is {'an async' if self.is_async else 'a plain'} function and takes a {others}.",
                means=f"It is given a {ours}, whose verbs {'must be' if self.is_async else 'are not'} awaited.",
                todo=f"Write {right}.",
            )
        if written in _NO_CONTEXT:
            raise errors.ConfigError(
                f"The first parameter of the workflow {self.name!r} is {first.name!r}, of type {written}.",
                means="The first one is given the context; the event or the arguments come after it.",
                todo=f"Write {right}.",
            )

    if TYPE_CHECKING:

        def _call(self, *args: P.args, **kwargs: P.kwargs) -> R:
            """Be matched by `Takes1` and the like; there is no such method."""
            ...

    @functools.cached_property
    def result_codec(self) -> codec.Codec:
        """Give how the result is stored, by the function's return annotation."""
        return codec.codec_for(return_annotation(self.function))

    @functools.cached_property
    def result_name(self) -> str:
        """Give what the result is called in messages."""
        return f"The result of workflow {self.name!r}"

    def check(self) -> None:
        """Refuse, before any run, annotations of which no value could be stored.

        Raises:
            ConfigError: an argument's or the result's annotation has no stored form.
        """
        _ = self.result_codec
        if not self.takes_event:
            for parameter in self._parameters:
                self._codec_of(parameter.name)

    @functools.cached_property
    def takes_event(self) -> bool:
        """Say whether the function takes the event itself rather than arguments."""
        if not self._parameters:
            return False
        written = self._parameters[0].annotation
        if written is inspect.Parameter.empty:
            return bool(self.triggers)
        return written is Event or (isinstance(written, str) and _last_name(written) == Event.__name__)

    def pack(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, limit_bytes: int) -> str:
        """Give the JSON payload of a start with these arguments.

        Raises:
            ConfigError: the arguments do not fit the function.
            NotStorable: an argument cannot be stored.
        """
        if self.takes_event:
            if kwargs or len(args) > 1:
                raise errors.ConfigError(
                    f"The workflow {self.name!r} takes an event and was started with {len(args) + len(kwargs)} arguments.",
                    means="A start of such a workflow has one argument: the event's payload.",
                    todo=f"Write app.start({self.name}, payload).",
                )
            return json_plain.encode_payload(
                args[0] if args else None, what=f"The payload of {self.name!r}", limit_bytes=limit_bytes
            )
        args, kwargs = self._bound(args, kwargs)
        packed = [
            self._pack_one(self._positional(number), value, limit_bytes) for number, value in enumerate(args)
        ]
        named = [
            f"{msgspec.json.encode(key).decode()}:{self._pack_one(self._named(key), value, limit_bytes)}"
            for key, value in kwargs.items()
        ]
        text = f'{{"args":[{",".join(packed)}]' + (f',"kwargs":{{{",".join(named)}}}' if named else "") + "}"
        size_bytes = len(text.encode())
        if size_bytes > limit_bytes:
            raise json_plain.too_large(f"The arguments of {self.name!r}", size_bytes, limit_bytes)
        return text

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments as they fit the function."""
        if not kwargs and self._least <= len(args) <= len(self._positionals) and not self._is_variadic:
            return args, kwargs
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise errors.ConfigError(
                f"The workflow {self.name!r} cannot be started with these arguments: {error}.",
                means="Nothing was started.",
                todo="Pass what the function takes after its context.",
            ) from error
        return bound.args, bound.kwargs

    @functools.cached_property
    def _least(self) -> int:
        """Give how many arguments the function needs; more than it can take by position is never."""
        return sum(
            1 + (one.kind is one.KEYWORD_ONLY) * len(self._parameters)
            for one in self._parameters
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        )

    @functools.cached_property
    def _is_variadic(self) -> bool:
        return any(one.kind is one.VAR_POSITIONAL for one in self._parameters)

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.Signature(self._parameters)

    def _codec_of(self, name: str) -> codec.Codec:
        found = self._codecs.get(name)
        if found is None:
            annotation = parameter_annotation(self.function, name)
            found = self._codecs[name] = codec.codec_for(annotation)
        return found

    @functools.cached_property
    def _codecs(self) -> dict[str, codec.Codec]:
        return {}

    @functools.cached_property
    def _is_plain(self) -> bool:
        """Say whether every argument follows the plain rules, so that all are read at once."""
        return all(self._codec_of(one.name).is_plain for one in self._parameters)

    def _pack_one(self, name: str, value: Any, limit_bytes: int) -> str:
        return self._codec_of(name).encode(
            value, what=f"Argument {name!r} of {self.name!r}", limit_bytes=limit_bytes, role="argument"
        )

    def unpack(self, event: Event) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments after the context, for a run of *event*."""
        if self.takes_event:
            return (event,), {}
        if not self._parameters:
            return (), {}
        if not ids.is_start(event.source, event.id):
            return (self._of_payload(event),), {}
        text = event.payload_text or '{"args":[]}'
        if self._is_plain:
            packed_plain = json_plain.decode_plain(text)
            return tuple(packed_plain["args"]), packed_plain.get("kwargs", {})
        packed = _decode_arguments(text)
        args = tuple(
            self._decode(self._positional(number), bytes(raw).decode())
            for number, raw in enumerate(packed.args)
        )
        return args, {
            key: self._decode(self._named(key), bytes(raw).decode()) for key, raw in packed.kwargs.items()
        }

    def arguments_by_name(self, packed: str | None) -> str:
        """Give the payload of a start as a JSON object of the arguments by their names."""
        arguments = _decode_arguments(packed or '{"args":[]}')
        named = {self._positional(number): raw for number, raw in enumerate(arguments.args)}
        return msgspec.json.encode({**named, **arguments.kwargs}).decode()

    def _of_payload(self, event: Event) -> Any:
        """Give the payload of an event as the first parameter's annotation says."""
        name = self._parameters[0].name
        if event.payload_text is None or self._codec_of(name).annotation is Any:
            return event.payload
        return self._decode(name, event.payload_text)

    def _positional(self, number: int) -> str:
        """Give the name of the parameter that takes an argument by position; *args takes the rest."""
        return self._positionals[min(number, len(self._positionals) - 1)]

    @functools.cached_property
    def _positionals(self) -> list[str]:
        by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
        return [one.name for one in self._parameters if one.kind not in by_name]

    def _named(self, key: str) -> str:
        """Give the name of the parameter that takes an argument by name; **kwargs takes the rest."""
        known = {one.name: one.kind for one in self._parameters}
        if known.get(key, inspect.Parameter.VAR_KEYWORD) is not inspect.Parameter.VAR_KEYWORD:
            return key
        return next(name for name, kind in known.items() if kind is inspect.Parameter.VAR_KEYWORD)

    def _decode(self, name: str, text: str) -> Any:
        return self._codec_of(name).decode(text, what=f"Argument {name!r} of {self.name!r}")

    def to_row(self, seen_at: Millis) -> WorkflowRow:
        """Give the registration as data."""
        triggers = msgspec.json.encode([trigger.to_data() for trigger in self.triggers]).decode()
        rules = self.policies.rules.to_text()
        keep = self.policies.keep
        retention = None if keep is None else msgspec.json.encode(keep).decode()
        tags = msgspec.json.encode(self.policies.tags).decode() if self.policies.tags else None
        return WorkflowRow(self.name, triggers, seen_at, self.policies.deadline_ms, rules, retention, tags)

    def __repr__(self) -> str:
        """Show the name."""
        return f"<workflow {self.name!r}>"

    if not TYPE_CHECKING:  # where types are checked, a call is an error already

        def __call__(self, *_: object, **__: object) -> NoReturn:
            """Refuse to be called as a function, and say what there is instead."""
            raise errors.StepMisuse(
                f"The workflow {self.name!r} was called as a function.",
                means="It would be no run of its own: nothing of it would be saved under its name.",
                todo=f"In a workflow write ctx.step.call(name, {self.__name__}, …), elsewhere "
                f"app.start({self.__name__}, …).",
            )


def triggers_of(on: Trigger | str | Sequence[Trigger | str] | None) -> list[Trigger]:
    """Give the triggers of an ``on=``: a text means an event of our own by its type.

    Raises:
        ConfigError: it is something else, such as a source without a type.
    """
    return [Trigger(OWN, one) if isinstance(one, str) else one for one in parts_of(on)]


def parts_of(on: Trigger | str | Sequence[Trigger | str] | None) -> list[Trigger | str]:
    """Give what an ``on=`` lists.

    Raises:
        ConfigError: as for `triggers_of`.
    """
    if on is None:
        return []
    parts = list(on) if isinstance(on, list | tuple | set | frozenset) else [on]
    for part in parts:
        if not isinstance(part, Trigger | str):
            _refuse_trigger(part)
    return cast("list[Trigger | str]", parts)


def _refuse_trigger(given: Any) -> NoReturn:
    name = getattr(given, "name", None)
    if isinstance(name, str) and hasattr(type(given), "__getitem__"):
        raise errors.ConfigError(
            f"A workflow is on the source {name!r}, without a type of its events.",
            means="It does not say which of them start a run.",
            todo=f'Write on={name}["invoice.paid"] for one type, ["invoice.*"] for several, ["*"] for all.',
        )
    raise errors.ConfigError(
        f"A workflow cannot be on {shown(given)}.",
        means="What starts it is a source's type of event, or the type of an event that the app emits.",
        todo='Write for example on=stripe["invoice.paid"], on="order.paid", or a list of such.',
    )
