"""The EVENTS table: one row a line of log.

The version is in the Arrow schema's metadata under `denpex.schema_version`; columns are added, never changed.
Column names follow OpenTelemetry's logs data model where it has one (docs/schema.md has the mapping).
"""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 1
MAX_RANK = (1 << 31) - 1
"""What the columns of ranks can hold. No job has so many processes: a file named for more is misread."""

EVENT_SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("ns", tz="UTC")),
        # own: on the line; inherited: the last stamp above it in the same stream; bounded: only a later one is
        # known; none.
        pa.field("ts_quality", pa.dictionary(pa.int8(), pa.string()), nullable=False),
        pa.field("host", pa.dictionary(pa.int32(), pa.string())),
        pa.field("rank", pa.int32()),
        pa.field("local_rank", pa.int32()),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("stream", pa.dictionary(pa.int8(), pa.string())),
        # OpenTelemetry's scale: 1 trace, 5 debug, 9 info, 13 warn, 17 error, 21 fatal; 0 not told.
        pa.field("severity", pa.int8(), nullable=False),
        pa.field("logger", pa.dictionary(pa.int32(), pa.string())),
        pa.field("body", pa.string()),
        # id of the message signature, of the block the line belongs to (`py.traceback`), or null
        pa.field("signature", pa.dictionary(pa.int32(), pa.string())),
        pa.field("path", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("line", pa.int64(), nullable=False),
    ],
    metadata={"denpex.schema_version": str(SCHEMA_VERSION)},
)
