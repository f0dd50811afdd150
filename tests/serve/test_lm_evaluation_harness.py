"""lm-evaluation-harness itself, as its command, on a task of local texts: its sums are differences of scores."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("lm_eval") is None, reason="lm_eval is not installed: pip install 'lm_eval[api]'"),
]
PAIRS = [("the cat sat on", " a mat and"), ("two dogs", " run far away"), ("a", " cat")]


@pytest.mark.parametrize(("kind", "tokenized"), [("default", True), ("words", False)])
def test_sums_are_those_of_score(kind, tokenized, app, serving, runs, tmp_path):
    documents = [{"context": context, "continuation": continuation} for context, continuation in PAIRS]
    (tmp_path / "texts.jsonl").write_text("\n".join(map(json.dumps, documents)))
    task = {
        "task": "texts", "dataset_path": "json", "dataset_kwargs": {"data_files": str(tmp_path / "texts.jsonl")},
        "test_split": "train", "output_type": "loglikelihood", "doc_to_text": "{{context}}",
        "doc_to_target": "{{continuation}}", "target_delimiter": "", "metric_list": [{"metric": "perplexity"}],
    }  # fmt: skip
    (tmp_path / "texts.yaml").write_text(json.dumps(task))
    with serving(app(kind)) as port:
        asked = f"model={kind},base_url=http://127.0.0.1:{port}/v1/completions,tokenized_requests={tokenized}"
        command = [
            sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", asked,
            "--tasks", "texts", "--include_path", tmp_path, "--log_samples", "--output_path", tmp_path / "out",
        ]  # fmt: skip
        offline = {"HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
        done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (samples,) = (tmp_path / "out").rglob("samples_texts_*.jsonl")
    found = {
        record["doc"]["context"]: record["resps"][0][0] for record in map(json.loads, samples.read_text().splitlines())
    }
    assert len(found) == len(PAIRS)
    for context, continuation in PAIRS:
        before, whole = runs(kind).score([context, context + continuation])["nats"]
        assert -float(found[context][0]) == pytest.approx(whole - before, abs=1e-4)
