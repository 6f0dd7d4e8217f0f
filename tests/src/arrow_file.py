"""Copies a Parquet file into an Arrow IPC file: arrow_file.py IN.parquet OUT.arrow"""

import sys

import pyarrow
import pyarrow.parquet

table = pyarrow.parquet.read_table(sys.argv[1])
with pyarrow.ipc.new_file(sys.argv[2], table.schema) as file:
    file.write_table(table, max_chunksize=1000)
