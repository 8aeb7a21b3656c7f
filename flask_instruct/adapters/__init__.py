"""Adapters: each turns one model call of one wire protocol into events, and holds no loop and no state."""

from __future__ import annotations

from .base import Adapter
from .registry import preferred
from .registry import preferred_reason
from .registry import resolve

__all__ = ["Adapter", "preferred", "preferred_reason", "resolve"]
