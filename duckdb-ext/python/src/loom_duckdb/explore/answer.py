"""The result of a query as columns of plain values, read in batches and cut off if it becomes too large.

TIMESTAMP and TIMESTAMPTZ become integers: microseconds since 1970. A value that a browser's numbers cannot hold, such as an integer of
2^53 or more or an infinity, becomes text.
"""

import json
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from loom_duckdb.explore import limits

_BATCH_ROWS = 1024
_EXACT_MAX = 2**53 - 1
_BLOB_BYTES_SHOWN = 64


@dataclass
class Answer:
    """Columns of equal length; `truncated` if there was more, `ms` is the time that DuckDB took."""

    names: list[str]
    types: list[str]
    columns: list[list[Any]] = field(default_factory=list)
    truncated: bool = False
    ms: float = 0.0

    def json(self) -> bytes:
        """Return the answer as the page reads it."""
        return json.dumps(self.__dict__, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()


def collect(relation: duckdb.DuckDBPyRelation, stopped: threading.Event) -> Answer:
    """Read a result until it ends, meets a limit or is stopped."""
    answer = Answer(list(relation.columns), [str(kind) for kind in relation.types])
    answer.columns = [[] for _ in answer.names]
    rows = size = 0
    with relation.to_arrow_reader(_BATCH_ROWS) as reader:
        for batch in reader:
            batch = batch.slice(0, limits.ROWS_MAX - rows)
            size += batch.nbytes
            if size > limits.ANSWER_BYTES_MAX or stopped.is_set():
                answer.truncated = True
                break
            for values, column in zip(answer.columns, batch.columns, strict=True):
                values.extend(_plain(column))
            rows += batch.num_rows
            if rows == limits.ROWS_MAX:
                answer.truncated = True
                break
    return answer


def _plain(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column, kind = column.cast(pa.int64()), pa.int64()
    change = _CHANGES.get(kind.id, str)
    values = column.to_pylist()
    return values if change is None else [None if value is None else change(value) for value in values]


def _exact(value: int) -> int | str:
    return value if -_EXACT_MAX <= value <= _EXACT_MAX else str(value)


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _hex(value: bytes) -> str:
    return value[:_BLOB_BYTES_SHOWN].hex(" ") + (" …" if len(value) > _BLOB_BYTES_SHOWN else "")


# The conversion to a plain value for each Arrow type; None if the value is plain. Other types become text.
_CHANGES: dict[int, Callable[[Any], Any] | None] = {
    **dict.fromkeys((pa.bool_().id, pa.string().id, pa.null().id), None),
    **dict.fromkeys((kind.id for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32())), None),
    **dict.fromkeys((pa.int64().id, pa.uint64().id), _exact),
    **dict.fromkeys((pa.float32().id, pa.float64().id), _finite),
    pa.binary().id: _hex,
}
