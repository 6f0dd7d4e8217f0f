"""Write the dashboard that Superset imports: `make_zip.py OUT.zip` packs the YAML files of `assets/`.

The archive holds the same bytes each time. The test and README.md call it.
"""

import sys
import zipfile
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"


def main(out: Path) -> None:
    """Pack the files into one folder, as Superset requires."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(ASSETS.rglob("*.yaml")):
            entry = zipfile.ZipInfo(f"loom/{file.relative_to(ASSETS)}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make_zip.py OUT.zip")
    main(Path(sys.argv[1]))
