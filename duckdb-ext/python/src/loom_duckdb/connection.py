"""Connections with Loom loaded, and the statements that load Loom in other tools.

DuckDB 2 loads the macros with the extension and attaches with a pragma. For earlier versions this module runs the same statements itself.
"""

import glob
import os
import re
from collections.abc import Sequence
from typing import Any

import duckdb

from loom_duckdb.files import MACROS, extension_path, is_native, warn_of_slow_where

Directory = str | os.PathLike[str]

# A semicolon inside of these does not end a statement.
_QUIET = re.compile(r"""--[^\n]*|'(?:[^']|'')*'|"(?:[^"]|"")*\"""")


def connect(
    dir: Directory | Sequence[Directory] | None = None,
    *,
    name: str | None = None,
    database: Directory = ":memory:",
    read_only: bool = False,
    **duckdb_options: Any,
) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB database with Loom loaded, and attach a directory as a catalog with a view for each source.

    `dir` is a path, a glob or a list of them; a glob and a list need `name`, the catalog's name, which otherwise is the directory's name
    without `.loom`. `database` and `read_only` are passed to `duckdb.connect`, and other arguments become DuckDB's options: `threads=2`.

    Raises RuntimeError if no extension file fits, `duckdb.Error` if the directory cannot be read.
    """
    settings = {**duckdb_options, "allow_unsigned_extensions": "true"}
    connection = duckdb.connect(os.fspath(database), read_only=read_only, config=settings)
    try:
        load(connection)
        if dir is not None:
            for statement in _attach(connection, dir, name):
                connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def load(connection: duckdb.DuckDBPyConnection) -> None:
    """Load Loom into a connection that allows unsigned extensions, with its macros.

    Before DuckDB 2.0 the macros belong to this one connection: load a `cursor()` too.
    """
    version = _version(connection)
    try:
        for statement in _load(version):
            connection.execute(statement)
    except duckdb.Error as error:
        if "allow_unsigned_extensions" not in str(error):
            raise
        raise RuntimeError(
            "cannot load Loom: its extension is unsigned and this connection does not allow that; "
            "use loom_duckdb.connect(), or duckdb.connect(config={'allow_unsigned_extensions': 'true'})"
        ) from error
    warn_of_slow_where(version)


def init_sql(dir: Directory | Sequence[Directory] | None = None, *, name: str | None = None, duckdb_version: str | None = None) -> str:
    """Return the statements with which a tool loads Loom and attaches `dir`, as one text.

    Each semicolon ends a statement, because some tools split the text at each. The tool's connection must allow unsigned extensions.
    `duckdb_version` is the version of the tool's DuckDB, by default that of Python.
    Before 2.0 the statements name the sources that exist now, so `dir` must exist.
    """
    version = duckdb.__version__ if duckdb_version is None else duckdb_version
    statements = _load(version)
    if dir is not None and is_native(version):
        statements.append(_pragma(dir, name))
    elif dir is not None:
        with connect() as connection:
            statements += _statements(connection, dir, name)
    return "\n".join(f"{_plain(statement).rstrip().rstrip(';')};" for statement in statements) + "\n"


def lock_sql(dir: Directory | Sequence[Directory], *, duckdb_version: str | None = None) -> str:
    """Return the statements that close a database with Loom loaded to all files, and then lock its settings, as one text.

    Only Loom's functions can then read `dir`: a path, a glob or a list of them; a glob is expanded now. Nothing can be written. Run the
    text after `init_sql` and after your own settings. Before DuckDB 2 Loom's functions can read every Loom directory.
    """
    native = is_native(duckdb.__version__ if duckdb_version is None else duckdb_version)
    confined = [f"loom_directories = [{', '.join(map(quoted, _paths(dir)))}]"] if native else []
    settings = [
        "temp_directory = ''",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        *confined,
        "enable_external_access = false",
        "lock_configuration = true",
    ]
    return "".join(f"SET {setting};\n" for setting in settings)


def _paths(dir: Directory | Sequence[Directory]) -> list[str]:
    if isinstance(dir, (str, os.PathLike)):
        path = os.path.abspath(os.path.expanduser(os.fspath(dir)))
        return sorted(glob.glob(path)) or [path]
    return [path for each in dir for path in _paths(each)]


def _plain(sql: str) -> str:
    """Remove comments from SQL, and semicolons from texts."""

    def plain(found: re.Match[str]) -> str:
        piece = found[0]
        if piece.startswith("--"):
            return ""
        if piece.startswith("'") and ";" in piece:
            return "(" + piece.replace(";", "' || chr(59) || '") + ")"
        return piece

    lines = _QUIET.sub(plain, sql).splitlines()
    return "\n".join(line for line in lines if line.strip())


def _version(connection: duckdb.DuckDBPyConnection) -> str:
    (version,) = connection.execute("SELECT version()").fetchall()[0]
    return version


def _load(version: str) -> list[str]:
    statements = [f"LOAD {quoted(os.fspath(extension_path(version)))}"]
    if not is_native(version):
        statements.append(MACROS.read_text(encoding="utf-8"))
    return statements


def _attach(connection: duckdb.DuckDBPyConnection, dir: Directory | Sequence[Directory], name: str | None) -> list[str]:
    if is_native(_version(connection)):
        return [_pragma(dir, name)]
    return _statements(connection, dir, name)


def _pragma(dir: Directory | Sequence[Directory], name: str | None) -> str:
    return f"PRAGMA loom_attach({_directories(dir)}{'' if name is None else f', {quoted(name)}'})"


def _statements(connection: duckdb.DuckDBPyConnection, dir: Directory | Sequence[Directory], name: str | None) -> list[str]:
    named = "" if name is None else f", name := {quoted(name)}"
    rows = connection.execute(f"SELECT statement FROM loom_attach({_directories(dir)}{named})").fetchall()
    return [statement for (statement,) in rows]


def _directories(dir: Directory | Sequence[Directory]) -> str:
    """Write `dir` as a constant. Paths become absolute, because a tool may run in another directory."""
    if isinstance(dir, (str, os.PathLike)):
        return quoted(os.path.abspath(os.path.expanduser(os.fspath(dir))))
    return f"[{', '.join(_directories(each) for each in dir)}]"


def quoted(text: str) -> str:
    """Write a text as a SQL constant."""
    return "'" + text.replace("'", "''") + "'"
