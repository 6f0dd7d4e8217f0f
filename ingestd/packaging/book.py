#!/usr/bin/env python3
"""Makes the pages that README.md leads to one static site with search. It needs mdbook.

Each file keeps its place in the repository, so the pages' relative links work on the site as they do on GitHub.

    book.py MDBOOK SITE
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pages

ROOT = Path(__file__).resolve().parent.parent.parent
# The parts of the contents, with the folders of their pages. Within a part the pages stand in the order in which others link to them.
PARTS = {
    "Query": ["sql"],
    "Python": ["duckdb-ext"],
    "The daemon": ["ingestd"],
    "The code": ["engine", "tests"],
}
# Without mdbook's preprocessors: one replaces `{{`, which pages may contain, the other renames README.md, but no link to it.
BOOK = """\
[book]
title = "Loom"

[build]
use-default-preprocessors = false

[output.html]
smart-punctuation = false
# Its links would be relative to a server's root.
input-404 = ""
no-section-label = true
additional-css = ["wide.css"]

[output.html.print]
enable = false
"""

# The width of the pages' code.
CSS = ":root { --content-max-width: 1200px; }\n"


def main() -> None:
    """Copy the pages, write the contents, and build."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: book.py MDBOOK SITE")
    site = Path(sys.argv[2]).resolve()
    with tempfile.TemporaryDirectory() as place:
        book = Path(place)
        book.joinpath("book.toml").write_text(BOOK)
        book.joinpath("wide.css").write_text(CSS)
        source = book / "src"
        files = [file.relative_to(ROOT) for file in pages.reachable(ROOT / "README.md")]
        for file in files:
            source.joinpath(file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, source / file)
        source.joinpath("SUMMARY.md").write_text("".join(contents([file for file in files if file.suffix == ".md"])))
        shutil.rmtree(site, ignore_errors=True)
        subprocess.run([sys.argv[1], "build", book, "--dest-dir", site], check=True, env=os.environ | {"MDBOOK_LOG": "warn"})


def contents(found: list[Path]) -> list[str]:
    """Return the lines of mdbook's SUMMARY.md."""
    lines = [f"[Loom]({found[0]})\n"]
    for part, folders in PARTS.items():
        lines.append(f"\n# {part}\n\n")
        lines += [f"- [{title(file)}]({file})\n" for file in found if file.parts[0] in folders]
    return lines


def title(file: Path) -> str:
    """Return the first heading of a page."""
    return re.search("^# (.*)$", (ROOT / file).read_text(), re.MULTILINE)[1]


if __name__ == "__main__":
    main()
