"""How many arguments a workflow can be started with, for type checkers.

A keyword of ours (``id=``, ``item=``) beside a function's own arguments cannot be said with a
``ParamSpec``, so calls with one are matched by these, with all arguments by position.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

R_co = TypeVar("R_co", covariant=True)
A1_contra = TypeVar("A1_contra", contravariant=True)
A2_contra = TypeVar("A2_contra", contravariant=True)
A3_contra = TypeVar("A3_contra", contravariant=True)
A4_contra = TypeVar("A4_contra", contravariant=True)


class Takes0(Protocol[R_co]):
    """A workflow that can be started without arguments."""

    def _call(self) -> R_co: ...


class Takes1(Protocol[A1_contra, R_co]):
    """A workflow that can be started with one argument."""

    def _call(self, a1: A1_contra, /) -> R_co: ...


class Takes2(Protocol[A1_contra, A2_contra, R_co]):
    """A workflow that can be started with two arguments."""

    def _call(self, a1: A1_contra, a2: A2_contra, /) -> R_co: ...


class Takes3(Protocol[A1_contra, A2_contra, A3_contra, R_co]):
    """A workflow that can be started with three arguments."""

    def _call(self, a1: A1_contra, a2: A2_contra, a3: A3_contra, /) -> R_co: ...


class Takes4(Protocol[A1_contra, A2_contra, A3_contra, A4_contra, R_co]):
    """A workflow that can be started with four arguments."""

    def _call(self, a1: A1_contra, a2: A2_contra, a3: A3_contra, a4: A4_contra, /) -> R_co: ...
