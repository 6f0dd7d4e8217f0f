"""Loom in marimo: `LOOM_DIR=demo.loom marimo edit marimo_live.py`. `python marimo_live.py` runs the cells without a page."""

import marimo

app = marimo.App()


@app.cell
def _():
    import os

    import loom_duckdb
    import marimo as mo

    db = loom_duckdb.connect(os.environ["LOOM_DIR"], name="live")
    db.execute("SET TimeZone = 'UTC'; SET python_enable_replacements = false")
    db.execute(loom_duckdb.lock_sql(os.environ["LOOM_DIR"]))
    return db, mo


@app.cell
def _(mo):
    refresh = mo.ui.refresh(["2s", "10s"], default_interval="2s")
    refresh  # noqa: B018
    return (refresh,)


@app.cell
def _(db, mo, refresh):
    refresh  # noqa: B018
    seconds = mo.sql(
        "SELECT bucket, count, p50, p99, max FROM live.redis_request__latency WHERE bucket >= now() - INTERVAL 1 MINUTE ORDER BY bucket",
        engine=db,
        output=False,
    )
    mo.ui.table(seconds)
    return (seconds,)


if __name__ == "__main__":
    _, defined = app.run()
    print(defined["seconds"].height)
