"""Loom in Streamlit: `streamlit run app.py -- DIR` shows the requests of the last minutes, live."""

import sys

import loom_duckdb

import streamlit as st

DIRECTORY = sys.argv[1]


@st.cache_resource
def database():
    """Open one database for all visitors. It reads the directory and no other file."""
    db = loom_duckdb.connect(DIRECTORY, name="live", memory_limit="1GB")
    db.execute("SET TimeZone = 'UTC'; SET python_enable_replacements = false")
    db.execute(loom_duckdb.lock_sql(DIRECTORY))
    return db


@st.fragment(run_every=2)
def pictures(minutes):
    """Draw the pictures again every two seconds, without the rest of the page."""
    db = database().cursor()
    seconds = db.execute(
        "SELECT bucket, count, p50 / 1000 AS p50, p99 / 1000 AS p99, max / 1000 AS slowest FROM live.redis_request__latency "
        "WHERE bucket >= now() - to_minutes($1) AND bucket < date_trunc('second', now()) ORDER BY bucket",
        [minutes],
    ).df()
    left, right = st.columns(2)
    left.metric("requests in the last second", f"{seconds['count'].iloc[-1]:,}" if len(seconds) else "none")
    right.metric("slowest of the window", f"{seconds['slowest'].max():,.0f} µs" if len(seconds) else "none")
    left.area_chart(seconds, x="bucket", y="count", x_label="", y_label="requests per second")
    right.line_chart(seconds, x="bucket", y=["slowest", "p99", "p50"], x_label="", y_label="latency, µs")
    st.caption("Requests of 300 µs or more, the slowest first")
    slow = "FROM live.redis_request WHERE ts >= now() - to_minutes($1) AND latency_ns >= 300_000 ORDER BY latency_ns DESC LIMIT 100"
    st.dataframe(
        db.execute(f"SELECT ts, op, key, latency_ns / 1000 AS latency_us {slow}", [minutes]).df(), hide_index=True, width="stretch"
    )


st.set_page_config("Loom", layout="wide")
st.title("Loom, live")
pictures(st.slider("minutes", 1, 30, 5))
