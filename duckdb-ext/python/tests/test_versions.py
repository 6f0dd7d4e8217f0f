"""The lines that `versions.py` makes from the headers of a release."""

from pathlib import Path

import versions

SCALAR, TYPED = "int a(int x);", "typedef enum { ONE = 1, TWO = 2 } kind;"


def headers(functions: list[str], declared: str) -> dict[str, str]:
    struct = "".join(f"\tint (*{name})\n\t(int x);\n" for name in functions)
    return {"duckdb_extension_v2.h": f"typedef struct {{\n{struct}}} duckdb_ext_api_v2;", "duckdb_v2.h": declared}


BOUND = headers(["a", "b", "c", "d"], f"{SCALAR} int b(int x); int c(int x); int d(int x); {TYPED}")


def test_functions_that_moved_stand_in_runs_and_changed_ones_are_missing() -> None:
    declared = f"/* a comment; */ {SCALAR}\nint b(int x, bool y); int c(\n  int x); int d(int x); {TYPED}"
    text, notes = versions.placed(BOUND, headers(["new", "a", "b", "c", "newer", "d"], declared))
    assert text == "1+1 -1 3+1 5+1"
    assert notes == ["has no b of this form: Loom must not call it"]


def test_the_same_headers_move_nothing() -> None:
    assert versions.placed(BOUND, BOUND) == ("0+4", [])


def test_a_type_of_another_form_needs_a_look() -> None:
    declared = BOUND["duckdb_v2.h"].replace("TWO = 2", "ZERO = 2, TWO = 3")
    text, notes = versions.placed(BOUND, headers(["a", "b", "c"], declared))
    assert text == "0+3 -1"
    assert notes == ["declares kind in another way: look at each use of it", "has no d of this form: Loom must not call it"]


def test_the_newest_release_is_the_last_of_the_table() -> None:
    assert sorted(versions.RELEASES, key=versions.numbers) == versions.RELEASES
    assert Path(versions.HERE, "versions.toml").is_file()
