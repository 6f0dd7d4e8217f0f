"""Writes Python values as SQL: constants, names, and named parameters after other arguments. `fleet` and `spark` use it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from loom_duckdb.connection import quoted


@dataclass(frozen=True)
class Typed:
    """A value that is SQL already, such as `'1'::UBIGINT`."""

    text: str


def parameters(options: Mapping[str, Any]) -> str:
    """Write named parameters that follow other arguments; None omits one."""
    return "".join(f", {identifier(name)} := {constant(value)}" for name, value in options.items() if value is not None)


def constant(value: Any) -> str:
    """Write a value as a constant. Raises ValueError for a time without a zone."""
    if isinstance(value, Typed):
        return value.text
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"the time {value} has no time zone; add one, such as tzinfo=datetime.UTC")
        return f"{quoted(value.isoformat())}::TIMESTAMPTZ"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(constant, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{quoted(str(value))}::DOUBLE"
    return quoted(value) if isinstance(value, str) else str(value)


def identifier(name: str) -> str:
    """Write a name in quotes."""
    return '"' + name.replace('"', '""') + '"'
