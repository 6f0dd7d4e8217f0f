#!/usr/bin/env python3
"""The releases of DuckDB that Loom has a file for, from versions.toml, a check for newer ones on PyPI, and the version of Loom.

    versions.py loom            the version of Loom, which stands in Cargo.toml alone
    versions.py newest          the newest release of DuckDB 2, which tests and tools use
    versions.py earlier         its other releases, a line each
    versions.py folders         the folders of the extension files; `duckdb-v2` is a link to the newest's
    versions.py check           says whether PyPI has a newer release, and prints its line for versions.toml
    versions.py line RELEASE    prints the line of one release
"""

import io
import re
import sys
import tarfile
import tomllib
import urllib.parse
import urllib.request
from pathlib import Path

INDEX = "https://pypi.org/simple/duckdb/"
HERE = Path(__file__).resolve().parent
TABLE = tomllib.loads((HERE / "versions.toml").read_text())
LOOM = tomllib.loads((HERE.parent / "Cargo.toml").read_text())["workspace"]["package"]["version"]
# The release whose header the Rust bindings are made from, so its functions have the positions that the bindings expect.
BOUND = next(iter(TABLE["v2"]))
RELEASES = list(TABLE["v2"])
NEWEST = RELEASES[-1]
V1 = "duckdb-v1"
# This is a link to the folder of the newest release.
LINK = "duckdb-v2"


def folder(release: str) -> str:
    """Return the folder of the file for a release of DuckDB 2."""
    return f"duckdb-v{release}"


FILES = [*map(folder, RELEASES), V1]


def main() -> None:
    """Run the command of the arguments."""
    match sys.argv[1:]:
        case ["loom"]:
            print(LOOM)
        case ["newest"]:
            print(NEWEST)
        case ["earlier"]:
            print(*RELEASES[:-1], sep="\n")
        case ["folders"]:
            print(*FILES, LINK, sep="\n")
        case ["check"]:
            check()
        case ["line", release]:
            print(line(release))
        case _:
            raise SystemExit(__doc__)


def check() -> None:
    """Compare the table with PyPI."""
    missing = [release for release in published() if release not in RELEASES and numbers(release) > numbers(NEWEST)]
    if not missing:
        print(f"DuckDB {NEWEST} is the newest release on PyPI, and Loom has a file for it.")
    for release in missing:
        print(f"DuckDB {release} is on PyPI. Add this line to duckdb-ext/versions.toml, then run 'make build test':")
        print(line(release))


def numbers(release: str) -> tuple[int, ...]:
    """Return a release such as 2.0.1 as numbers, which compare in the order of releases."""
    return tuple(map(int, release.split(".")))


def published() -> dict[str, str]:
    """Return the releases of DuckDB 2 and later on PyPI, the earliest first, each with the address of its source distribution."""
    with urllib.request.urlopen(INDEX) as answer:
        page = answer.read().decode()
    found = {release: urllib.parse.urljoin(INDEX, url) for url, release in re.findall(r'href="([^"#]*/duckdb-([\d.]+)\.tar\.gz)', page)}
    return {release: found[release] for release in sorted(found, key=numbers) if numbers(release)[0] >= 2}


def line(release: str) -> str:
    """Return the line of a release: the positions of the functions that Loom is compiled against. Warnings go to standard error."""
    text, notes = placed(header(BOUND), header(release))
    for note in notes:
        print(f"DuckDB {release} {note}", file=sys.stderr)
    return f'"{release}" = "{text}"'


def placed(bound: dict[str, str], given: dict[str, str]) -> tuple[str, list[str]]:
    """Compare two pairs of headers: the positions of the first one's functions in the second, and the changes."""
    functions, there = table(bound["duckdb_extension_v2.h"]), table(given["duckdb_extension_v2.h"])
    position = {name: at for at, name in enumerate(there)}
    old, new = declarations(bound["duckdb_v2.h"]), declarations(given["duckdb_v2.h"])
    changed = {name for name, text in old.items() if new.get(name) != text}
    others = sorted(changed - set(functions))
    notes = [f"declares {name} in another way: look at each use of it" for name in others]
    runs: list[tuple[int | None, int]] = []
    for name in functions:
        at = None if name in changed else position.get(name)
        if at is None:
            notes.append(f"has no {name} of this form: Loom must not call it")
        first, count = runs[-1] if runs else (0, 0)
        follows = at is None if first is None else at == first + count
        if runs and follows:
            runs[-1] = (first, count + 1)
        else:
            runs.append((at, 1))
    return " ".join(f"-{count}" if first is None else f"{first}+{count}" for first, count in runs), notes


def header(release: str) -> dict[str, str]:
    """Return the headers of C API v2 from the source distribution."""
    url = published().get(release)
    if url is None:
        raise SystemExit(f"versions.py: PyPI has no sources of DuckDB {release}")
    with urllib.request.urlopen(url) as answer:
        archive = tarfile.open(fileobj=io.BytesIO(answer.read()))
    names = {Path(member.name).name: member for member in archive if "/src/include/duckdb" in member.name}
    return {name: archive.extractfile(names[name]).read().decode() for name in ("duckdb_extension_v2.h", "duckdb_v2.h")}


def table(text: str) -> list[str]:
    """Return the functions of the struct that DuckDB passes, in order."""
    struct = text[text.index("typedef struct {") : text.index("} duckdb_ext_api_v2")]
    return re.findall(r"\(\*(\w+)\)", struct)


def declarations(text: str) -> dict[str, str]:
    """Return the declarations of a header by name: functions, types, structs and enums, without comments and spaces."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*|^\s*#[^\n]*(?:\\\n[^\n]*)*", "", text, flags=re.S | re.M)
    found = {}
    for declaration in re.findall(r"[^;{}]*(?:\{[^{}]*\}[^;{}]*)?;", text):
        words = re.sub(r" ?([^\w ]) ?", r"\1", " ".join(declaration.split()))
        name = re.search(r"\(\*(\w+)\)|(\w+)\(|(\w+);$", words)
        if name:
            found[name[1] or name[2] or name[3]] = words
    return found


if __name__ == "__main__":
    main()
