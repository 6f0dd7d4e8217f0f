#!/usr/bin/env python3
"""Finds the links of Markdown pages, and the dead ones among them.

    pages.py PAGE...

prints each dead link of these pages; the exit status is 1 if there is one. Packages contain the pages that the first one leads to.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]*)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def without_code(text: str) -> str:
    """Return the text with its code replaced by characters without meaning, in the same length."""
    text = FENCE.sub(lambda found: re.sub(".", " ", found[0]), text)
    return SPAN.sub(lambda found: re.sub("[^\n]", "x", found[0]), text)


def links(text: str) -> Iterator[re.Match]:
    """Find the links outside code: group 1 is the text, group 2 the target."""
    return LINK.finditer(without_code(text))


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = LINK.sub(r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        again = sum(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other) is not None for other in found)
        found.add(f"{anchor}-{again}" if again else anchor)
    return found


def leads_away(target: str) -> bool:
    """Tell a link to another host from one to a file or a heading."""
    return "://" in target


def dead(page: Path) -> Iterator[str]:
    """Describe the dead links of a page."""
    for found in links(page.read_text()):
        target = found[2]
        if leads_away(target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not target:
            yield f"{page}: the link of '{found[1]}' is empty"
        elif not file.exists():
            yield f"{page}: {target}: no such file"
        elif anchor and anchor not in anchors(file.read_text()):
            yield f"{page}: {target}: no such heading"


def reachable(first: Path) -> list[Path]:
    """Return a page and all files that its links lead to, directly or through other pages, in this order."""
    found = [first.resolve()]
    for file in found:
        if file.suffix == ".md":
            targets = (link[2].partition("#")[0] for link in links(file.read_text()) if not leads_away(link[2]))
            new = dict.fromkeys((file.parent / target).resolve() for target in targets if target)
            found += [target for target in new if target not in found]
    return found


def alone(text: str) -> str:
    """Return a page without its pictures, and with links to other files replaced by their texts."""
    parts, end = [], 0
    for found in links(text):
        if leads_away(found[2]) or found[2].startswith("#"):
            continue
        parts.append(text[end : found.start()])
        if not found[0].startswith("!"):
            parts.append(text[found.start(1) : found.end(1)])
        end = found.end()
    return "".join([*parts, text[end:]])


if __name__ == "__main__":
    faults = [fault for page in sys.argv[1:] for fault in dead(Path(page))]
    print(*faults, sep="\n")
    sys.exit(1 if faults else 0)
