"""A server of the Model Context Protocol: an agent asks Loom directories by tools, over standard input and output.

`python -m loom_duckdb.mcp DIR` starts it. `tools` writes the SQL of each question. `asking` runs it in the processes of the explorer, which
read only the given directories, and makes small answers.
"""
