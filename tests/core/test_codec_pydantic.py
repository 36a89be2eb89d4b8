"""Models of the user's: wherever they stand, they come back equal, by pydantic's own rules."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceward.core.codec import codec_for
from onceward.core.errors import ConfigError, HistoryMismatch, NotStorable, StoreDamaged

LIMIT = 1_000_000
WHAT = "The result of step 'charge'"
T = TypeVar("T")


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal
    tags: set[str] = set()


class Order(pydantic.BaseModel):
    id: UUID
    placed_at: datetime
    lines: tuple[Line, ...]
    first: Line | None = None
    kind: Literal["order"] = "order"


class Refund(pydantic.BaseModel):
    order: UUID
    kind: Literal["refund"] = "refund"


class Aliased(pydantic.BaseModel):
    order_id: int = pydantic.Field(validation_alias="orderId", serialization_alias="order-id")
    nested: list[Line] = pydantic.Field(default=[], alias="lines")

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def doubled(self) -> int:
        return self.order_id * 2


class Open(pydantic.BaseModel, extra="allow"):
    name: str


class Strict(pydantic.BaseModel, strict=True, frozen=True):
    at: datetime
    raw: bytes


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Names(pydantic.RootModel[list[str]]):
    pass


class Tree(pydantic.BaseModel):
    children: list[Tree] = []


@dataclasses.dataclass
class Envelope:
    order: Order | None
    seal: bytes


@dataclasses.dataclass
class Either:
    what: Order | Refund


class Record(msgspec.Struct):
    lines: dict[int, Line]


ORDER = Order(
    id=UUID(int=1), placed_at=datetime(2024, 1, 1, tzinfo=UTC), lines=(Line(sku="a", price=Decimal("1.10")),)
)
REFUND = Refund(order=UUID(int=1))


def back(annotation: Any, value: Any) -> Any:
    codec = codec_for(annotation)
    text, decoded = codec.round_trip(value, what=WHAT, limit_bytes=LIMIT)
    msgspec.json.decode(text)
    assert codec.decode(text) == decoded
    assert codec.encode(value, what=WHAT, limit_bytes=LIMIT) == text
    return decoded


def refusal(annotation: Any, value: Any) -> str:
    with pytest.raises(NotStorable) as refused:
        codec_for(annotation).round_trip(value, what=WHAT, limit_bytes=LIMIT)
    return str(refused.value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Order, ORDER),
        (Order | None, ORDER),
        (Order | None, None),
        (list[Order], [ORDER, ORDER]),
        (dict[str, tuple[Order, bytes]], {"a": (ORDER, b"\xff")}),
        (Order | Refund, ORDER),
        (Order | Refund, REFUND),
        (list[Order | Refund | str], [REFUND, "x", ORDER]),
        (Annotated[Order | Refund, pydantic.Field(discriminator="kind")], REFUND),
        (Envelope, Envelope(ORDER, b"\xff")),
        (Either, Either(REFUND)),
        (Record, Record({7: Line(sku="a", price=Decimal(1), tags={"x"})})),
        (Aliased, Aliased.model_validate({"orderId": 3, "lines": [{"sku": "a", "price": "1"}]})),
        (list[Aliased], [Aliased.model_validate({"orderId": 3})]),
        (Open, Open.model_validate({"name": "a", "more": [1, {"x": None}]})),
        (Strict, Strict(at=datetime(2024, 1, 1, tzinfo=UTC), raw=b"x")),
        (list[Strict], [Strict(at=datetime(2024, 1, 1, tzinfo=UTC), raw=b"x")]),
        (Page[Line], Page[Line](items=[Line(sku="a", price=Decimal(1))])),
        (Names, Names(["a", "b"])),
        (Tree, Tree(children=[Tree(), Tree(children=[Tree()])])),
        (pydantic.HttpUrl, pydantic.HttpUrl("https://example.com/a")),
        (list[pydantic.HttpUrl], [pydantic.HttpUrl("https://example.com/a")]),
        (Annotated[Line, "note"], Line(sku="a", price=Decimal(1))),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_model_comes_back_equal_wherever_it_stands(annotation: Any, value: Any) -> None:
    decoded = back(annotation, value)

    assert decoded == value
    assert type(decoded) is type(value)


@given(
    st.builds(
        Line, sku=st.text(), price=st.decimals(allow_nan=False, allow_infinity=False), tags=st.sets(st.text())
    )
)
@settings(deadline=None)
def test_any_model_of_supported_fields_comes_back_equal(line: Line) -> None:
    assert back(Line, line) == line
    assert back(list[Line | None], [line, None]) == [line, None]


class Derived(Line):
    more: int = 0


class WithFloat(pydantic.BaseModel):
    value: float | None


class Constants(pydantic.BaseModel, ser_json_inf_nan="constants"):
    value: float


class Loud(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def shout(cls, name: str) -> str:
        return f"{name}!"


class Private(pydantic.BaseModel):
    name: str
    _seen: int = 0


class Raises(pydantic.BaseModel):
    name: str

    @pydantic.field_serializer("name")
    def fail(self, name: str) -> str:
        raise RuntimeError(f"no {name}")


def seen_private() -> Private:
    made = Private(name="a")
    made._seen = 3
    return made


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (Line, Derived(sku="a", price=Decimal(1)), "$ is of type "),
        (Line, {"sku": "a", "price": "1"}, "$"),
        (Line, None, "$"),
        (Any, ORDER, "Annotate the function's return type"),
        (WithFloat, WithFloat(value=math.nan), "$.value is nan"),
        (list[WithFloat], [WithFloat(value=math.inf)], "$[0].value is inf"),
        (Constants, Constants(value=math.inf), "$.value is inf"),
        (Constants, Constants(value=math.nan), "$.value is nan"),
        (Loud, Loud(name="a"), "$.name is 'a!' and would come back as 'a!!'"),
        (Private, seen_private(), "$._seen is 3 and would come back as 0"),
        (Open, Open.model_validate({"name": "a", "more": (1, 2)}), "$.more is of type tuple"),
        (Raises, Raises(name="a"), "no a"),
        (list[Raises], [Raises(name="a")], "$"),
        (Line, Line.model_construct(sku=5, price=Decimal(1)), "$"),
        (Order | Refund, Line(sku="a", price=Decimal(1)), "$"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_model_that_would_not_come_back_the_same_is_refused(
    annotation: Any, value: Any, words: str
) -> None:
    message = refusal(annotation, value)

    assert words in message
    assert message.startswith(f"{WHAT} cannot be stored: $")


def test_a_model_that_nests_too_deep_or_contains_itself_is_refused() -> None:
    deep, itself = Tree(), Tree()
    for _ in range(150):
        deep = Tree(children=[deep])
    itself.children.append(itself)

    assert "nests deeper than 200 levels" in refusal(Tree, deep)
    assert "nests deeper than 200 levels" in refusal(Tree, itself)


class Unfinished(pydantic.BaseModel):
    other: NotYet  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize("annotation", [Unfinished, list[Unfinished | Line], dict[Line, int]], ids=str)
def test_a_model_that_cannot_work_is_refused_when_the_codec_is_made(annotation: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be stored"):
        codec_for(annotation)


def test_a_saved_model_that_no_longer_fits_is_a_mismatch() -> None:
    with pytest.raises(HistoryMismatch, match=r"Field required - at \$\.price"):
        codec_for(Line).decode('{"sku":"a"}')
    with pytest.raises(StoreDamaged, match="cannot be read"):
        codec_for(Line).decode('{"sku":')


ALONE = """
import sys
from onceward.core.codec import codec_for
class NotAModel: pass
codec_for(tuple[int, str]).round_trip((1, "a"), what="x", limit_bytes=99)
try:
    codec_for(list[NotAModel])
except Exception as error:
    print(type(error).__name__)
print("pydantic" in sys.modules)
"""


def test_a_program_without_pydantic_never_imports_it() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    ended = subprocess.run(
        [sys.executable, "-c", ALONE], env=environment, capture_output=True, text=True, timeout=60, check=True
    )

    assert ended.stdout.split() == ["ConfigError", "False"]
