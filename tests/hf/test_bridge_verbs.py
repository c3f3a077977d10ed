"""Export to transformers by the command line: every kind of run is loaded by its Auto class and answers alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from huggingface_hub import constants
from small_runs import untrained

import odeum.hf
from odeum.lab.cli import main

MEMBERS = (
    "sequential",
    "parallel",
    "parallel:independent=1",
    "rk4",
    "macaron",
    "strang",
    "ode-transformer",
    "transevolve",
)
LINES = ["the cat sat on the mat", "a dog ran over the hill", "the hill is high and green", "a cat ran on"] * 12


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n")
    (folder / "rows.csv").write_text("text,label\n" + "".join(f"{line},{i % 3}\n" for i, line in enumerate(LINES)))
    (folder / "lines.en").write_text("\n".join(LINES) + "\n")
    (folder / "lines.de").write_text("\n".join(line[::-1] for line in LINES) + "\n")
    images = np.random.default_rng(0).integers(0, 255, (30, 8, 8), dtype=np.uint8)
    np.savez(folder / "set.npz", images=images, labels=np.arange(30) % 2)
    return folder


@pytest.mark.parametrize(
    "architecture", ["rk4", *(pytest.param(a, marks=pytest.mark.slow) for a in MEMBERS if a != "rk4")]
)
def test_generate_is_predict(architecture: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same text from the same prompt, by the tokenizer that was saved with the model."""
    run, out = untrained(tmp_path / "run", architecture, data / "lines.txt"), tmp_path / "out"
    assert main(["export", str(run), str(out), "--to", "hf"]) == 0
    capsys.readouterr()
    assert main(["predict", str(run), "--text", "the cat", "--temperature", "0", "--max_new_tokens", "9"]) == 0
    ours = capsys.readouterr().out.removesuffix("\n")
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModelForCausalLM.from_pretrained(out)
    ids = tokenizer("the cat", return_tensors="pt")
    found = model.generate(**ids, max_new_tokens=9, do_sample=False, pad_token_id=0)[0]
    assert "the cat" + tokenizer.decode(found[ids["input_ids"].shape[1] :]) == ours


KINDS = {
    "texts": (("rows.csv",), {}, "AutoModelForSequenceClassification", "input_ids"),
    "images": (("set.npz",), {}, "AutoModelForImageClassification", "pixel_values"),
    "masked": (("lines.txt",), {"kind": "masked"}, "AutoModelForMaskedLM", "input_ids"),
    "pairs": (("lines.en", "lines.de"), {}, "AutoModelForSeq2SeqLM", "input_ids"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_exported(kind: str, data: Path, tmp_path: Path) -> None:
    names, options, auto, first = KINDS[kind]
    run, out = untrained(tmp_path / "run", "rk4", *(data / name for name in names), **options), tmp_path / "out"
    assert main(["export", str(run), str(out), "--to", "hf"]) == 0
    ours, theirs = odeum.load(run).model, getattr(transformers, auto).from_pretrained(out)
    given = dict(ours.example("cpu"))
    with torch.no_grad():
        right = ours(**given).logits
        renamed = {first if name == "images" else name: tensor for name, tensor in given.items()}
        torch.testing.assert_close(theirs(**renamed).logits, right)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["parallel", "rk4", "macaron"])
def test_a_seed_samples_the_same_with_every_cache(architecture: str, data: Path, tmp_path: Path) -> None:
    run, out = untrained(tmp_path / "run", architecture, data / "lines.txt"), tmp_path / "out"
    model = transformers.AutoModelForCausalLM.from_pretrained(odeum.hf.save(run, out))
    vocabulary = model.config.vocab_size
    ids, mask = torch.randint(vocabulary, (2, 5)), torch.tensor([[1] * 5, [0, 0, 1, 1, 1]])
    options = {"attention_mask": mask, "max_new_tokens": 8, "do_sample": True, "pad_token_id": 0}

    def sampled(seed: int, **more: Any) -> torch.Tensor:
        torch.manual_seed(seed)
        return model.generate(ids, **options, **more)

    first = sampled(1, temperature=1.5, top_p=0.9, top_k=20)
    for more in ({"use_cache": False}, {"cache_implementation": "static"}):
        assert torch.equal(sampled(1, temperature=1.5, top_p=0.9, top_k=20, **more), first)
    assert not torch.equal(sampled(2, temperature=1.5, top_p=0.9, top_k=20), first)
    greedy = model.generate(ids, **{**options, "do_sample": False})
    assert torch.equal(sampled(1, top_k=1), greedy)


def test_a_name_of_the_hub_comes_from_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Without a network, what was fetched before is used; what was not is one sentence."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    home, commit = tmp_path / "hub" / "models--somebody--small", "0" * 40
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(commit)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4)
    theirs = transformers.ViTForImageClassification(config).eval()
    theirs.save_pretrained(home / "snapshots" / commit)
    assert main(["import", "somebody/small", "--out", str(tmp_path / "run")]) == 0
    assert "compared: logits differ" in capsys.readouterr().out
    images = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(odeum.load(tmp_path / "run").model(images).logits, theirs(images).logits)
    assert main(["import", "somebody/else", "--out", str(tmp_path / "new")]) == 2
    err = capsys.readouterr().err
    assert "'somebody/else' is not a local path and cannot be downloaded" in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists()
