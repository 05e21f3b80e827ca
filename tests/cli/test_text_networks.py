"""A network of transformers that reads text, and code of one's own for tables, through the commands."""

import json

import pytest
import torch

from deepbilevel_lab.networks import named_code
from deepbilevel_lab.training.model_file import load_model
from tests.cli.trained import refusal, run
from tests.data.tables import WORDS, write_notes, write_patients, write_table

QUICK = ("--threads", 1, "--quiet")


@pytest.fixture
def named(monkeypatch):
    """Forget what others have named."""
    monkeypatch.setattr(named_code, "_named", {})


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A folder with a small network, its weights and its tokenizer."""
    transformers = pytest.importorskip("transformers", reason="run: pip install '.[transformers]'")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    folder = tmp_path_factory.mktemp("reader")
    words = ["[PAD]", "[UNK]", *WORDS["sport"], *WORDS["food"], "the", "a", "and", "of"]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(folder)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=32, **shape)
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture
def notes(tmp_path):
    return write_notes(tmp_path / "notes.csv")


def test_text_is_read_by_a_network_of_transformers(reader, notes, tmp_path, named):
    columns = ("--target", "kind", "--text", "note")
    options = ("--network", f"transformers:{reader}", "--pretrained", "--lr", "0.01", "--epochs", "12")
    run("train", "--data", notes, *columns, *options, *QUICK, "--out", tmp_path / "runs")
    (folder,) = (tmp_path / "runs").iterdir()
    new = write_table(tmp_path / "new.csv", [["team win goal"], ["salt soup oven"], [""]], ["note"])
    answers = json.loads(run("predict", folder, new, "--network", f"transformers:{reader}", "--json").stdout)
    assert [row["label"] for row in answers[:2]] == ["sport", "food"]
    own = json.loads(run("evaluate", folder, "--network", f"transformers:{reader}", "--json").stdout)
    assert own["score"] == own["recorded"]
    # How many rows stand beside a text, and how long they are, does not change what is said of it.
    alone = write_table(tmp_path / "alone.csv", [["team win goal"]], ["note"])
    (answer,) = json.loads(run("predict", folder, alone, "--network", f"transformers:{reader}", "--json").stdout)
    assert answer["probability"] == pytest.approx(answers[0]["probability"], abs=1e-5)


def test_an_audit_of_text_reads_it_so(reader, notes, tmp_path, named):
    columns = ("--target", "kind", "--text", "note", "--network", f"transformers:{reader}")
    run("audit", notes, *columns, "--epochs", 2, "--threads", 1, "--out", tmp_path / "audit")
    assert (tmp_path / "audit" / "issues.csv").is_file()


def test_another_tokenizer_is_another_network(reader, notes, tmp_path, named):
    import shutil

    copy = shutil.copytree(reader, tmp_path / "copy")
    before = named_code.name_code(f"transformers:{copy}")
    (copy / "tokenizer.json").write_text((copy / "tokenizer.json").read_text().replace('"soup"', '"broth"'))
    assert named_code.name_code(f"transformers:{copy}") != before


def test_what_does_not_go_with_text_is_refused(reader, notes, tmp_path, named):
    network = ("--network", f"transformers:{reader}")
    table = ("--data", notes, "--target", "kind")
    assert "reads text; name the column of text with --text" in refusal("train", *table, *network, "--dry-run")
    text = (*table, "--text", "note", "--out", tmp_path / "runs", *QUICK)
    assert "words have no blend; drop it" in refusal("train", *text, *network, "--mixing", "mixup")
    assert "takes images; networks for tables: mlp" in refusal("train", *text, "--network", "timm:resnet18")
    assert "takes images; networks for tables: mlp" in refusal("train", *text, "--network", "cifarnet")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_bytes((reader / "config.json").read_bytes())
    assert "has no tokenizer that can be read" in refusal("train", *text, "--network", f"transformers:{bare}")
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("*/model.safetensors"))


def test_code_of_ones_own_learns_a_table(tmp_path, named):
    code = tmp_path / "net.py"
    code.write_text(
        "from torch import nn\n\n\ndef make(num_classes, num_features, width=8):\n"
        "    return nn.Sequential(nn.Linear(num_features, width), nn.ReLU(), nn.Linear(width, num_classes))\n"
    )
    patients = write_patients(tmp_path / "patients.csv")
    own = ("--network", f"{code}:make")
    run("train", "--data", patients, "--target", "state", *own, "--epochs", 3, *QUICK, "--out", tmp_path / "runs")
    (folder,) = (tmp_path / "runs").iterdir()
    trained = load_model(folder)
    assert trained.encoding is not None
    assert trained.network[0].in_features == trained.encoding.width
    assert len(json.loads(run("predict", folder, patients, *own, "--json").stdout)) == 240
