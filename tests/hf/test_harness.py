"""lm-evaluation-harness on a saved run, by the documented command; its scores are those of the model itself."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import odeum
from odeum.lab.cli import main

LINES = ["the cat sat on the mat", "a dog ran over the hill", "the hill is high and green", "a cat ran on"]
QUESTIONS = [
    {"question": "the cat sat on", "choices": [" the mat", " zz qq"], "answer": 0},
    {"question": "a dog ran", "choices": [" green high", " over the hill"], "answer": 1},
    {"question": "the hill is", "choices": [" high and green", " mat cat"], "answer": 0},
]
TASKS = {
    "choice": """
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: choices
doc_to_target: answer
target_delimiter: ""
metric_list: [{metric: acc}]
""",
    "goes_on": """
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["nothing like this"], max_gen_toks: 12, do_sample: false}
metric_list: [{metric: exact_match}]
""",
    "rolling": """
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list: [{metric: word_perplexity}]
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["rk4", "continuous"])
def test_three_lines(architecture: str, tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="lm-evaluation-harness is not installed")
    (tmp_path / "lines.txt").write_text("\n".join(LINES * 30) + "\n")
    small = ["--model.width", "16", "--model.heads", "2", "--model.depth", "1", "--train.steps", "60"]
    run, out = str(tmp_path / "run"), str(tmp_path / "exported")
    assert main(["train", str(tmp_path / "lines.txt"), "--architecture", architecture, *small, "--out", run]) == 0
    assert main(["export", run, out, "--to", "hf"]) == 0
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    for name, text in TASKS.items():
        data = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {tmp_path}/questions.jsonl}}}}\n"
        (tmp_path / f"{name}.yaml").write_text(f"task: lines_{name}\n{data}test_split: test{text}")
    words = "run --model odeum --model_args pretrained=exported --include_path . --device cpu --batch_size 2"
    command = [*words.split(), "--output_path", "scores", "--log_samples", "--tasks", *(f"lines_{n}" for n in TASKS)]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "home")}
    found = subprocess.run(
        [sys.executable, "-m", "odeum.hf.harness", *command],
        cwd=tmp_path, env=offline, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    scores = json.loads(next((tmp_path / "scores").rglob("results_*.json")).read_text())["results"]

    model = odeum.load(run)
    tokens = model.task.tokens

    def told(text: str, begin: int = 0) -> float:
        """The log-probability of all tokens of a text from `begin` on."""
        ids = torch.tensor([[*tokens.prefix, *tokens.encode(text)]])
        with torch.no_grad():
            each = model.model(ids).logits.log_softmax(-1)[0, :-1].gather(1, ids[0, 1:, None])
        return float(each[begin:].sum())

    def right(row: dict) -> bool:
        begin = len(tokens.encode(row["question"]))
        sums = [told(row["question"] + choice, begin) for choice in row["choices"]]
        return sums.index(max(sums)) == row["answer"]

    rolled = sum(told(row["question"]) for row in QUESTIONS) / sum(len(row["question"].split()) for row in QUESTIONS)
    assert scores["lines_rolling"]["word_perplexity,none"] == pytest.approx(math.exp(-rolled), rel=1e-3)
    assert scores["lines_choice"]["acc,none"] == pytest.approx(sum(map(right, QUESTIONS)) / 3)
    file = next((tmp_path / "scores").rglob("samples_lines_goes_on_*.jsonl"))
    answers = {row["doc"]["question"]: row["resps"][0][0] for row in map(json.loads, file.read_text().splitlines())}
    for question, answer in answers.items():
        assert answer == model.predict([question], temperature=0, max_new_tokens=12)[0]
