"""FastAPI: an application of Starlette's kind, so its adapter is Starlette's."""

from __future__ import annotations

from onceward.adapters.starlette import Adapter

__all__ = ["Adapter"]
