"""The text of all experiments, out of Debian packages: the King James Bible, the Jargon File, the Devil's Dictionary and a quarter of
GCIDE (Webster's of 1913 for the most part). Pieces of 16 KiB; every 32nd is held out and stands at the end, so `data.validation` cuts it off.
Packages are downloaded and unpacked in the build folder; nothing is installed."""
import gzip
import hashlib
import json
import pathlib
import subprocess

import plan

PACKAGES = ("bible-kjv", "bible-kjv-text", "jargon-text", "dict-devil", "dict-gcide")
PIECE_BYTES, HELD_OUT_EVERY, GCIDE_EVERY = 16 << 10, 32, 4


def unpack(folder):
    """A tree with the packages' files."""
    tree = folder / "packages"
    if (tree / "done").exists():
        return tree
    tree.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["apt-get", "download", "-q", *PACKAGES], cwd=tree, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"experiments: apt-get download {' '.join(PACKAGES)}:\n{done.stderr}")
    for package in tree.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, tree], check=True)
    (tree / "done").touch()
    return tree


def pieces_of(text):
    return [text[at:at + PIECE_BYTES] for at in range(0, len(text), PIECE_BYTES)]


def split(sources):
    """(trained on, held out) of texts, piece by piece; what is held out of a text does not depend on the others."""
    pieces = [(number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1, piece)
              for text in sources for number, piece in enumerate(pieces_of(text))]
    return b"".join(piece for held, piece in pieces if not held), b"".join(piece for held, piece in pieces if held)


def sources_of(tree):
    bible = subprocess.run([tree / "usr/bin/bible", "-p", f"{tree}/usr/lib/", "-f", "Gen1:1-Rev22:21"], check=True,
                           stdin=subprocess.DEVNULL, capture_output=True).stdout
    jargon = gzip.decompress((tree / "usr/share/doc/jargon-text/jargon.txt.gz").read_bytes())
    devil, gcide = (gzip.decompress((tree / f"usr/share/dictd/{name}.dict.dz").read_bytes()) for name in ("devil", "gcide"))
    return [bible, jargon, devil, b"".join(pieces_of(gcide)[::GCIDE_EVERY])]


def make(folder):
    """{path, sha256, bytes, held_out_bytes}; the text is made if it is not there."""
    folder = pathlib.Path(folder)
    facts_path, path = folder / "text.json", folder / "text.txt"
    if not facts_path.exists():
        trained, held_out = split(sources_of(unpack(folder)))
        digest = hashlib.sha256(trained + held_out).hexdigest()
        if digest != plan.TEXT:
            raise SystemExit(f"experiments: these packages make another text: {digest}, the plan's is {plan.TEXT}")
        path.write_bytes(trained + held_out)
        facts = {"path": str(path), "bytes": len(trained) + len(held_out), "held_out_bytes": len(held_out)}
        facts_path.write_text(json.dumps(facts))
    return json.loads(facts_path.read_text())
