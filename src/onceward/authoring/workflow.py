"""Registered workflows: a function with a name, triggers and policies."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from onceward.authoring.event import Event
from onceward.core import codec, errors, json_plain
from onceward.core.annotations import return_annotation
from onceward.core.model import Millis, WorkflowRow
from onceward.core.retry import Retry
from onceward.core.triggers import OWN, Trigger

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

NAME_CHARS_MAX = 200


class _Arguments(msgspec.Struct):
    args: list[msgspec.Raw]
    kwargs: dict[str, msgspec.Raw] = {}


@dataclass(frozen=True)
class Policies:
    """How a workflow's runs are tried and how long they may take."""

    retry: Retry
    deadline_ms: Millis | None = None


class Workflow(Generic[P, R]):
    """A function whose every run is durable.

    ``P`` are the parameters after the context, ``R`` the result.
    """

    def __init__(
        self, function: Callable[..., Any], name: str, triggers: Sequence[Trigger], policies: Policies
    ) -> None:
        self.function = function
        self.name = checked_name(name, "workflow")
        self.triggers = tuple(triggers)
        self.policies = policies
        self.is_async = inspect.iscoroutinefunction(function)
        parameters = list(inspect.signature(function).parameters.values())
        if not parameters:
            raise errors.ConfigError(
                f"The workflow {name!r} takes no parameters.",
                means="It must take the context first, to call steps with.",
                todo="Write `async def fulfil(ctx: Context, …)`.",
            )
        self._parameters = parameters[1:]
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    @functools.cached_property
    def result_codec(self) -> codec.Codec:
        """Give how the result is stored, by the function's return annotation."""
        return codec.codec_for(return_annotation(self.function))

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except NameError as error:
            raise errors.ConfigError(
                f"An annotation of workflow {self.name!r} cannot be resolved: {error}.",
                means="Annotations decide how values come back from the store.",
                todo="Import the name at module level, outside `if TYPE_CHECKING`.",
            ) from error

    @functools.cached_property
    def takes_event(self) -> bool:
        """Say whether the function takes the event itself rather than arguments."""
        if not self._parameters:
            return False
        annotation = self._hints.get(self._parameters[0].name)
        return annotation is Event or (annotation is None and bool(self.triggers))

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
            return json_plain.encode_plain(
                args[0] if args else None, what=f"the payload of {self.name!r}", limit_bytes=limit_bytes
            )
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise errors.ConfigError(
                f"The workflow {self.name!r} cannot be started with these arguments: {error}.",
                means="Nothing was started.",
                todo="Pass what the function takes after its context.",
            ) from error
        names = [parameter.name for parameter in self._parameters]
        packed = []
        for number, value in enumerate(bound.args):
            parameter = self._parameters[min(number, len(names) - 1)]
            packed.append(self._pack_one(parameter.name, value, limit_bytes))
        named = [
            f"{msgspec.json.encode(key).decode()}:{self._pack_one(key, value, limit_bytes)}"
            for key, value in bound.kwargs.items()
        ]
        text = f'{{"args":[{",".join(packed)}]' + (f',"kwargs":{{{",".join(named)}}}' if named else "") + "}"
        if len(text) > limit_bytes:
            raise errors.ValueTooLarge(
                f"The arguments of {self.name!r} are {len(text)} bytes as JSON; the limit is {limit_bytes}.",
                means="Nothing was started.",
                todo="Store the data elsewhere and pass a reference, or raise value_bytes_max.",
            )
        return text

    @functools.cached_property
    def _signature(self) -> inspect.Signature:
        return inspect.Signature(self._parameters)

    def _codec_of(self, name: str) -> codec.Codec:
        found = self._codecs.get(name)
        if found is None:
            annotation = self._hints.get(name, Any)
            found = self._codecs[name] = codec.codec_for(annotation)
        return found

    @functools.cached_property
    def _codecs(self) -> dict[str, codec.Codec]:
        return {}

    def _pack_one(self, name: str, value: Any, limit_bytes: int) -> str:
        return self._codec_of(name).encode(
            value, what=f"argument {name!r} of {self.name!r}", limit_bytes=limit_bytes
        )

    def unpack(self, event: Event) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the arguments after the context, for a run of *event*."""
        if self.takes_event:
            return (event,), {}
        if not self._parameters:
            return (), {}
        if not event.source.startswith(("start/", "run/")):
            return (event.payload,), {}
        packed = msgspec.json.decode(event.payload_text or '{"args":[]}', type=_Arguments)
        names = [parameter.name for parameter in self._parameters]
        args = tuple(
            self._codec_of(names[min(number, len(names) - 1)]).decode(bytes(raw).decode())
            for number, raw in enumerate(packed.args)
        )
        return args, {
            key: self._codec_of(key).decode(bytes(raw).decode()) for key, raw in packed.kwargs.items()
        }

    def to_row(self, seen_at: Millis) -> WorkflowRow:
        """Give the registration as data."""
        triggers = msgspec.json.encode([trigger.to_data() for trigger in self.triggers]).decode()
        return WorkflowRow(self.name, triggers, seen_at, self.policies.deadline_ms)

    def __repr__(self) -> str:
        """Show the name."""
        return f"<workflow {self.name!r}>"


def checked_name(name: str, what: str) -> str:
    """Give *name* if it can be a name of ours, else say why not."""
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise errors.ConfigError(
            f"The {what} name {name[:60]!r} ({len(name)} characters) cannot be used.",
            means=f"Names are 1 to {NAME_CHARS_MAX} printable characters.",
            todo="Choose a shorter, plain name.",
        )
    return name


def triggers_of(on: Trigger | str | Sequence[Trigger | str] | None) -> list[Trigger]:
    """Give the triggers of an ``on=``: a text means an event of our own by its type."""
    if on is None:
        return []
    many = [on] if isinstance(on, Trigger | str) else list(on)
    return [Trigger(OWN, one) if isinstance(one, str) else one for one in many]
