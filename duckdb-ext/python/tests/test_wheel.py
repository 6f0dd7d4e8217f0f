"""The wheel as users install it, in the installed DuckDB: the newest of DuckDB 2 or 1."""

import struct
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
import versions
from conftest import RECORDS
from daemon import until

import loom_duckdb

NATIVE = duckdb.__version__.startswith("2.")


def test_connect_attaches_a_directory_and_its_views_give_the_records(shop: Path) -> None:
    with loom_duckdb.connect(shop) as db:
        assert db.execute("SELECT count(*), max(latency_us) FROM shop.request").fetchall() == [(RECORDS, 999)]


def test_connect_attaches_a_list_under_a_name_and_reads_each_directory_once(shop: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.loom"
    link.symlink_to(shop)
    with loom_duckdb.connect([shop, link], name="pair") as db:
        assert db.execute("SELECT count(*) FROM pair.request").fetchall() == [(RECORDS,)]


def test_connect_passes_options_and_opens_a_database_for_reading(shop: Path, tmp_path: Path) -> None:
    database = tmp_path / "own.duckdb"
    duckdb.connect(str(database)).execute("CREATE TABLE known AS SELECT 7 AS id").close()
    with loom_duckdb.connect(shop, database=database, read_only=True, threads=1) as db:
        assert db.execute("SELECT current_setting('threads')").fetchall() == [(1,)]
        assert db.execute("SELECT latency_us FROM shop.request JOIN known USING (id)").fetchall() == [(7,)]


def test_the_macros_are_there(shop: Path) -> None:
    with loom_duckdb.connect() as db:
        assert db.execute(f"SELECT loom_quantile('{shop}', 'request', 'latency_us', 0.5)").fetchall() == [(499,)]


def test_pandas_gets_every_value(shop: Path) -> None:
    with loom_duckdb.connect(shop) as db:
        frame = db.sql("SELECT id, latency_us, ts FROM shop.request ORDER BY id").df()
    assert len(frame) == RECORDS
    assert (frame.id % 1000 == frame.latency_us).all()
    assert str(frame.ts[1] - frame.ts[0]) == "0 days 00:00:00.001000"


@pytest.mark.skipif(not NATIVE, reason="the environment of DuckDB 1.5 has no polars")
def test_polars_gets_every_value(shop: Path) -> None:
    with loom_duckdb.connect(shop) as db:
        frame = db.sql("SELECT id, latency_us FROM shop.request").pl()
    assert frame.height == RECORDS
    assert frame.filter(frame["id"] % 1000 != frame["latency_us"]).is_empty()


def test_a_connection_of_the_user_is_loaded_too(shop: Path) -> None:
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as db:
        loom_duckdb.load(db)
        assert db.execute(f"SELECT count(*) FROM loom_scan('{shop}', 'request')").fetchall() == [(RECORDS,)]


def test_a_connection_without_unsigned_extensions_is_refused_with_the_remedy() -> None:
    with duckdb.connect() as db, pytest.raises(RuntimeError, match=r"loom_duckdb\.connect\(\)"):
        loom_duckdb.load(db)


def test_a_missing_directory_is_named() -> None:
    with pytest.raises(duckdb.Error, match=r"nowhere\.loom"):
        loom_duckdb.connect("nowhere.loom")


def test_the_statements_for_a_tool_load_and_attach(shop: Path) -> None:
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as db:
        db.execute(loom_duckdb.init_sql(shop))
        assert db.execute("SELECT count(*) FROM shop.request").fetchall() == [(RECORDS,)]
        assert db.execute(f"SELECT loom_position('{shop}') > 0").fetchall() == [(True,)]


@pytest.mark.parametrize("version", [None, "1.5.6"])
def test_a_tool_that_cuts_the_statements_at_each_semicolon_loads_and_attaches(version: str | None, shop: Path, tmp_path: Path) -> None:
    """Harlequin does that with the file of `-init`, and reads the answer of each piece."""
    odd = tmp_path / ("it's;odd.loom" if version else "it's.loom")
    odd.symlink_to(shop)
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as db:
        for piece in loom_duckdb.init_sql(odd, name="odd", duckdb_version=version).split(";"):
            if piece.strip():
                db.execute(piece).fetchall()
        assert db.sql("SELECT count(*) FROM odd.request").fetchall() == [(RECORDS,)]
        assert db.sql("SELECT loom_tcp_flags(18), loom_text('a\\x00;'::BLOB)").fetchall() == [("SYN, ACK", "a.;")]
        directory = str(odd).replace("'", "''")
        assert db.sql(f"SELECT loom_quantile('{directory}', 'request', 'latency_us', 0.5)").fetchall() == [(499,)]


def test_a_locked_database_reads_its_directory_and_no_other_file(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with loom_duckdb.connect(shop) as db:
        db.execute(loom_duckdb.lock_sql(str(shop.parent / "sh*.loom")))
        assert db.execute("SELECT count(*) FROM shop.request").fetchall() == [(RECORDS,)]
        for refused in (f"FROM '{tmp_path}/secret.csv'", f"COPY (SELECT 1) TO '{tmp_path}/out.csv'", "SET lock_configuration = false"):
            with pytest.raises(duckdb.Error):
                db.execute(refused)


def test_a_directory_with_a_quote_in_its_name_is_attached(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "it's.loom").symlink_to(shop)
    with loom_duckdb.connect(tmp_path / "it's.loom", name="quoted") as db:
        assert db.execute("SELECT count(*) FROM quoted.request").fetchall() == [(RECORDS,)]


@pytest.mark.parametrize(
    ("version", "folder"),
    [
        *((release, f"duckdb-v{release}") for release in versions.RELEASES),
        *((f"v{release}", f"duckdb-v{release}") for release in versions.RELEASES),
        ("1.3.0", "duckdb-v1"),
        ("1.5.6", "duckdb-v1"),
        ("2.0.99", "duckdb-v1"),
        ("v2.1.0-dev7", "duckdb-v1"),
    ],
)
def test_each_version_gets_the_file_that_fits(version: str, folder: str) -> None:
    path = loom_duckdb.extension_path(version)
    assert path.parent.name == folder
    assert path.is_file()


@pytest.mark.parametrize("version", ["1.2.2", "1.1.3", "0.10.0", "new"])
def test_a_version_that_no_file_fits_is_refused(version: str) -> None:
    with pytest.raises(RuntimeError, match=f"no extension file for DuckDB .?{version}"):
        loom_duckdb.extension_path(version)


def test_where_a_condition_prunes_nothing_the_package_warns_once() -> None:
    """Runs in a process of its own, in which nothing has warned yet."""
    script = "import loom_duckdb\nfor _ in range(3): loom_duckdb.connect().close()"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stderr.count(f"install duckdb=={versions.NEWEST}") == (0 if NATIVE else 1), done.stderr


@pytest.mark.skipif(not NATIVE, reason="only DuckDB 2 can load both files")
def test_the_file_of_earlier_versions_loads_in_a_later_one(shop: Path) -> None:
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as db:
        db.execute(loom_duckdb.init_sql(shop, duckdb_version="1.5.6"))
        assert db.execute("SELECT count(*) FROM shop.request").fetchall() == [(RECORDS,)]


def test_the_package_under_test_is_the_installed_wheel() -> None:
    assert "site-packages" in str(loom_duckdb.extension_path())
    listed = subprocess.run([sys.executable, "-m", "pip", "list"], check=True, capture_output=True, text=True).stdout
    assert "loom_duckdb" in listed


def test_one_install_is_enough_to_push_and_to_ask(ingestd: str, tmp_path: Path) -> None:
    from loom_duckdb import client, ring

    directory = tmp_path / "own.loom"
    toml = '[[source]]\nname = "ticks"\n[[source.field]]\nname = "n"\ntype = "u64"'
    with subprocess.Popen([ingestd, "run", str(directory)], stderr=subprocess.DEVNULL) as daemon:
        try:
            until((directory / "ingest.sock").exists)
            with client.connect(directory) as loom:
                loom.define(toml)
                loom.push("ticks", [(1,), (2,)])
            with ring.connect(directory) as loom:
                loom.push(loom.define(toml), struct.pack("<Q", 3))
            with loom_duckdb.connect(directory) as db:
                assert db.execute("SELECT sum(n) FROM own.ticks").fetchall() == [(6,)]
        finally:
            daemon.terminate()
