"""Signs the extension files with the builder's key, and lays them out as an extension repository, which DuckDB 2 installs from.

A user names the repository and its public key with `CREATE EXTENSION REPOSITORY`; from then on DuckDB takes the files that this key signed.
It hashes each MiB of a file, then the hashes together; the last 256 bytes of the file are the RSA signature of that.
"""

import base64
import gzip
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import versions

NAME = "loom.duckdb_extension"
SIGNATURE_BYTES = 256
HASHED_BYTES = 1024 * 1024
CREATE_KEY = "openssl genrsa -out KEY 2048"


def create(extensions: Path, key: Path) -> str:
    """Sign the files for DuckDB 2 in their folders, and add a folder with links to them. Return the public key."""
    public = openssl("pkey", "-in", key, "-pubout").decode()
    repository = extensions / "repository"
    for release in versions.RELEASES:
        file = extensions / versions.folder(release) / NAME
        file.write_bytes(signed(file.read_bytes(), key))
        link = repository / place(file)
        link.parent.mkdir(parents=True)
        link.symlink_to(Path("../../..", file.relative_to(extensions)))
    (repository / "public-key.pem").write_text(public)
    # DuckDB reads the key from here if the statement gives none.
    metadata = repository / ".well-known/duckdb-extension-repo.json"
    metadata.parent.mkdir()
    metadata.write_text(json.dumps({"version": 1, "signature_keys": [public]}, indent=2) + "\n")
    return public


def signed(contents: bytes, key: Path) -> bytes:
    """Replace the signature at the end of an extension file."""
    contents = contents[:-SIGNATURE_BYTES]
    parts = (contents[at : at + HASHED_BYTES] for at in range(0, len(contents), HASHED_BYTES))
    digest = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
    signature = openssl("pkeyutl", "-sign", "-inkey", key, "-pkeyopt", "digest:sha256", given=digest)
    if len(signature) != SIGNATURE_BYTES:
        raise SystemExit(f"package.py: DuckDB refuses the key {key}, which is not RSA with 2048 bits; create one with '{CREATE_KEY}'")
    return contents + signature


def fingerprint(public: str) -> str:
    """Return the fingerprint of a public key as `CREATE EXTENSION REPOSITORY` prints it."""
    return f"sha256:{hashlib.sha256(base64.b64decode(''.join(public.splitlines()[1:-1]))).hexdigest()}"


def place(file: Path) -> Path:
    """Return the place of an extension file in a repository: the release of DuckDB and the platform that its footer names."""
    footer = file.read_bytes()[-2 * SIGNATURE_BYTES : -SIGNATURE_BYTES]
    release, platform = (footer[at : at + 32].rstrip(b"\0").decode() for at in (160, 192))
    return Path(release, platform, NAME)


def publish(repository: Path, target: Path) -> None:
    """Copy a repository for a web server, which DuckDB asks for compressed files."""
    for file in repository.rglob("*"):
        copy = target / file.relative_to(repository)
        if file.is_dir():
            copy.mkdir(parents=True, exist_ok=True)
        elif file.name == NAME:
            copy.with_name(f"{NAME}.gz").write_bytes(gzip.compress(file.read_bytes(), compresslevel=6, mtime=0))
        else:
            shutil.copyfile(file, copy)


def openssl(*command: str | Path, given: bytes = b"") -> bytes:
    """Return what openssl prints."""
    try:
        done = subprocess.run(["openssl", *command], input=given, capture_output=True)
    except FileNotFoundError:
        raise SystemExit("package.py: signing needs openssl; install it (Debian, Ubuntu: openssl)") from None
    if done.returncode != 0:
        said = done.stderr.decode().strip()
        raise SystemExit(f"package.py: openssl cannot use the key of LOOM_SIGNING_KEY:\n{said}\nCreate one with '{CREATE_KEY}'")
    return done.stdout
