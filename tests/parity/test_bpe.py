"""GPT-2's byte-level BPE against Hugging Face's tokenizers and OpenAI's tiktoken, on a vocabulary that is trained here: English, random Unicode,
long runs. With TRAIND_GPT2_VOCAB=FOLDER on the vocab.json and merges.txt there (GPT-2's own, say) instead."""

import gzip
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import unicodedata

import numpy
import pytest
import safetensors.numpy

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tokenizers") is None, reason="tokenizers is not installed: make test TORCH=1")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TRAIND_BUILD", ROOT / "build"))
JARGON = pathlib.Path("/usr/share/doc/jargon-text/jargon.txt.gz")


def english():
    if JARGON.exists():
        return gzip.decompress(JARGON.read_bytes()).decode("latin-1")[:400000]
    return (ROOT / "docs" / "trainer.md").read_text() + (ROOT / "docs" / "architecture.md").read_text()


def random_text(draw, length):
    """Characters of all planes that Unicode 14 has assigned (later ones the libraries may class differently), and many of the common ones."""
    text = []
    while len(text) < length:
        char = chr(draw.choice([draw.randrange(128), draw.randrange(0x600), draw.randrange(0x3000), draw.randrange(0x110000)]))
        if unicodedata.category(char) not in ("Cn", "Cs", "Co"):
            text.append(char)
        if draw.random() < 0.2:
            text.append(draw.choice([" ", "  ", "\n", "\t ", "'s", "'ll", "\u3000", "\u00a0", "\u180e", "\x1c", "\x85", "12", "e\u0301"]))
    return "".join(text)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    import tokenizers
    if given := os.environ.get("TRAIND_GPT2_VOCAB"):
        return tokenizers.ByteLevelBPETokenizer.from_file(f"{given}/vocab.json", f"{given}/merges.txt", add_prefix_space=False), pathlib.Path(given)
    draw = random.Random(1)
    made = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
    made.train_from_iterator([english(), *(random_text(draw, 200) for _ in range(200))], vocab_size=3000, show_progress=False)
    folder = tmp_path_factory.mktemp("bpe")
    made.save_model(str(folder))
    return made, folder


def encode(folder, texts):
    wire = b"".join(str(len(data := text if isinstance(text, bytes) else text.encode())).encode() + b"\n" + data for text in texts)
    done = subprocess.run([BUILD / "tests" / "bpe_probe", folder], input=wire, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [list(map(int, line.split())) for line in done.stdout.decode().splitlines()]


def compare(tokenizer, texts):
    made, folder = tokenizer
    for text, got in zip(texts, encode(folder, texts), strict=True):
        assert got == made.encode(text).ids, ascii(text[:200])


def english_pieces():
    text = english()
    return [text[i:i + 20000] for i in range(0, len(text), 20000)]


def random_pieces():
    draw = random.Random(2)
    return ["", " ", "\n\n", "'", *(random_text(draw, draw.randrange(1, 300)) for _ in range(2000))]


def test_english(tokenizer):
    compare(tokenizer, english_pieces())


def test_random_unicode(tokenizer):
    compare(tokenizer, random_pieces())


def byte_of_character():
    """GPT-2's table: each byte as a printable character."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}


def test_tiktoken(tokenizer):
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed: make test TORCH=1")
    from tiktoken_ext.openai_public import r50k_pat_str
    folder, bytes_of = tokenizer[1], byte_of_character()
    tokens = json.loads((folder / "vocab.json").read_text())
    tokens.pop("<|endoftext|>", None)
    ranks = {bytes(bytes_of[char] for char in token): number for token, number in tokens.items()}
    made = tiktoken.Encoding("here", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={})
    texts = english_pieces() + random_pieces()
    for text, got in zip(texts, encode(folder, texts), strict=True):
        assert got == made.encode_ordinary(text), ascii(text[:200])


def test_every_assigned_character(tokenizer):
    chars = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    compare(tokenizer, ["x".join(chars[i:i + 500]) for i in range(0, len(chars), 500)] + [" ".join(chars[i:i + 500]) for i in range(0, len(chars), 500)])


def test_long_words(tokenizer):
    """A word of a million characters takes no quadratic time."""
    compare(tokenizer, ["a" * 1000000, "ab" * 100000, " " * 100000, "the" * 50000])


def test_escaped_names_and_bad_bytes(tokenizer, tmp_path):
    """vocab.json as OpenAI wrote it, with all but ASCII escaped; bytes that are no UTF-8 are replaced."""
    made, folder = tokenizer
    (tmp_path / "vocab.json").write_text(json.dumps(json.loads((folder / "vocab.json").read_text())))
    (tmp_path / "merges.txt").write_bytes((folder / "merges.txt").read_bytes())
    text = "Größe \U0001f600 no"
    assert encode(tmp_path, [text]) == [made.encode(text).ids]
    draw = random.Random(4)
    bad = [b"a\xffb\xc3", b"a\xe2\x82b", b"\xf0\x9f\x98", b"\xf0\x9f\x98\xe2\x82", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe0\x80\xf0\x80"]
    bad += [bytes(draw.choice(b"a \x80\x8f\x90\x9f\xa0\xbf\xc2\xdf\xe0\xe1\xed\xef\xf0\xf1\xf4\xf5") for _ in range(12)) for _ in range(300)]
    assert encode(tmp_path, bad) == [made.encode(text.decode(errors="replace")).ids for text in bad]


def test_a_merge_that_stands_twice(tmp_path):
    """The last of two lines counts, as in encoder.py's dict of merges."""
    import tokenizers
    (tmp_path / "vocab.json").write_text(json.dumps(byte_of_character() | {"ab": 256, "bc": 257}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nb c\na b\n")
    made = tokenizers.ByteLevelBPETokenizer.from_file(f"{tmp_path}/vocab.json", f"{tmp_path}/merges.txt", add_prefix_space=False)
    assert encode(tmp_path, ["abc", "ab"]) == [made.encode("abc").ids, made.encode("ab").ids]


def test_transformers_loads_an_export(tokenizer, tmp_path):
    """A model's folder with these files beside it: the same tokens, none that the model does not have."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: make test TORCH=1")
    made, folder = tokenizer
    size, width = len(json.loads((folder / "vocab.json").read_text())), 8
    shapes = {"wte.weight": (size, width), "wpe.weight": (32, width), "ln_f.weight": (width,), "ln_f.bias": (width,)}
    shapes |= {f"h.0.{name}": shape for name, shape in {
        "ln_1.weight": (width,), "ln_1.bias": (width,), "ln_2.weight": (width,), "ln_2.bias": (width,),
        "attn.c_attn.weight": (width, 3 * width), "attn.c_attn.bias": (3 * width,), "attn.c_proj.weight": (width, width),
        "attn.c_proj.bias": (width,), "mlp.c_fc.weight": (width, 4 * width), "mlp.c_fc.bias": (4 * width,),
        "mlp.c_proj.weight": (4 * width, width), "mlp.c_proj.bias": (width,)}.items()}
    (tmp_path / "saved").mkdir()
    safetensors.numpy.save_file({name: numpy.zeros(shape, numpy.float32) for name, shape in shapes.items()}, tmp_path / "saved" / "model.safetensors")
    (tmp_path / "saved" / "config.json").write_text(json.dumps(
        {"model_type": "gpt2", "n_layer": 1, "n_embd": width, "n_head": 2, "n_positions": 32, "vocab_size": size}))
    for words in (["import", "saved", "-o", "begin"], ["export", "begin", "--tokenizer", folder, "-o", "out"]):
        subprocess.run([BUILD / "bin" / "trainctl", *words], cwd=tmp_path, check=True, timeout=60)
    end = "<|endoftext|>" if "<|endoftext|>" in json.loads((folder / "vocab.json").read_text()) else None
    for kind in (transformers.AutoTokenizer, transformers.GPT2Tokenizer):
        read = kind.from_pretrained(tmp_path / "out")
        assert len(read) == size and read.model_max_length == 32 and read.eos_token == end
        for text in [piece for piece in english_pieces() if "<|endoftext|>" not in piece] + random_pieces()[:200]:
            assert read(text)["input_ids"] == made.encode(text).ids, ascii(text[:200])
            assert read.decode(read(text)["input_ids"]) == text


@pytest.mark.parametrize("name, text, says", [
    ("vocab.json", "[1]", "vocab.json: it is no JSON object of tokens and numbers"),
    ("vocab.json", '{"a": 1}', "vocab.json: it has no token for byte 0"),
    ("vocab.json", '{"a": 1, "b": 1}', "vocab.json: token 1 occurs twice"),
    ("vocab.json", '{"\\u4e00": 1}', "vocab.json: token 1 has a character that stands for no byte"),
    ("vocab.json", '{"a": 99999999}', "vocab.json: token 99999999 is beyond"),
    ("merges.txt", "#version: 0.2\nabc\n", "merges.txt: line 2: found no two tokens"),
    ("merges.txt", "#version: 0.2\nq zzzzq\n", "merges.txt: line 2: found a token that vocab.json does not have"),
    ("merges.txt", None, "merges.txt: cannot read: No such file or directory"),
])
def test_bad_files(tokenizer, tmp_path, name, text, says):
    for path in tokenizer[1].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_text(text) if text is not None else (tmp_path / name).unlink()
    done = subprocess.run([BUILD / "tests" / "bpe_probe", tmp_path], input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr
