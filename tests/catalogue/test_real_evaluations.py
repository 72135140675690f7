"""Real programs that run out of memory while they evaluate: is the missing `no_grad` named, and only where it is so?

On the CPU, by a limit on the address space. Frameworks are used where they are installed.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from aggregator.catalogue.naming import naming_of
from aggregator.pipeline import postmortem

ENTRY = "eval-oom-missing-no-grad"
ROOM = 3 << 29
"""Bytes that a program may take beyond what its imports took."""

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: nothing can run out of its memory"),
    pytest.mark.timeout(300),
]

HEAD = f"""
import resource, torch
from torch import nn
torch.set_num_threads(1)
WIDTH = 64
def limit():
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + {ROOM}, used + {ROOM}))
def layers():
    return nn.Sequential(*[part for _ in range(8) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())])
"""
TRAIN = """
def train(model, optimizer):
    for step in range(1, 6):
        loss = model(torch.randn(16, WIDTH)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}", flush=True)

def main():
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    limit()
    train(model, optimizer)
    print("Running evaluation", flush=True)
    print(evaluate(model))

main()
"""
PLAIN = """
def evaluate(model):
    model.eval()
    losses = []
    for batch in range(1000):
        losses.append(model(torch.randn(1 << 15, WIDTH)).pow(2).mean())
    return sum(losses)
"""
BLOCK = """
def evaluate(model):
    model.eval()
    with torch.no_grad():
        model(torch.zeros(1 << 22, WIDTH))
"""
DECORATED = """
@torch.inference_mode()
def evaluate(model):
    model.eval()
    model(torch.zeros(1 << 22, WIDTH))
"""
CALLER = """
def run(model):
    model(torch.zeros(1 << 22, WIDTH))

def evaluate(model):
    with torch.no_grad():
        return run(model)
"""
TRAINER = """
from transformers import Trainer, TrainingArguments
class Rows(torch.utils.data.Dataset):
    def __init__(self, size, width): self.size, self.width = size, width
    def __len__(self): return self.size
    def __getitem__(self, index): return {"x": torch.randn(self.width, WIDTH)}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = layers()
    def forward(self, x):
        out = self.layers(x if self.training else x.repeat(1, 1 << 14, 1))
        return {"loss": out.pow(2).mean(), "out": out.mean(dim=-1)}
def main():
    arguments = TrainingArguments("out", per_device_train_batch_size=2, per_device_eval_batch_size=16, max_steps=3,
        logging_steps=1, use_cpu=True, report_to=[], save_strategy="no", remove_unused_columns=False, disable_tqdm=True)
    trainer = Trainer(Model(), arguments, train_dataset=Rows(8, 8), eval_dataset=Rows(64, 8))
    trainer.train()
    limit()
    print("Running evaluation", flush=True)
    print(trainer.evaluate())
main()
"""
LIGHTNING = """
import lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = layers()
    def training_step(self, batch, index): return self.layers(batch).pow(2).mean()
    def validation_step(self, batch, index): return self.layers(batch.repeat(1 << 20, 1)).pow(2).mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=1e-3)
def main():
    data = torch.utils.data.DataLoader(torch.randn(64, WIDTH), batch_size=16)
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        num_sanity_val_steps=0, enable_progress_bar=False)
    limit()
    trainer.fit(Model(), data, data)
main()
"""


def diagnosis_of(tmp_path, program):
    script = tmp_path / "src" / "train.py"
    script.parent.mkdir()
    script.write_text(program)
    log = tmp_path / "job" / "rank0.log"
    log.parent.mkdir()
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1"}
    with log.open("wb") as out:
        ended = subprocess.run(
            [sys.executable, "-u", script],
            cwd=tmp_path,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            check=False,
        )
    assert ended.returncode != 0, log.read_text()
    failure = postmortem([str(log.parent)], naming=naming_of()).first_failure
    assert failure is not None, log.read_text()[-3000:]
    assert failure.phase == "evaluation"
    return failure.diagnosis, script


def test_an_evaluation_with_autograd_on_is_named_and_confirmed_by_its_source(tmp_path):
    diagnosis, script = diagnosis_of(tmp_path, HEAD + PLAIN + TRAIN)
    assert (diagnosis.entry, diagnosis.status) == (ENTRY, "confirmed")
    line = next(n for n, text in enumerate(script.read_text().splitlines(), 1) if "losses.append(" in text)
    assert any(text.startswith(f"{script}:{line}: ") for text in diagnosis.matched)


@pytest.mark.parametrize("evaluate", [BLOCK, DECORATED, CALLER], ids=["block", "decorator", "caller"])
def test_an_evaluation_with_autograd_off_is_named_otherwise(tmp_path, evaluate):
    diagnosis, _ = diagnosis_of(tmp_path, HEAD + evaluate + TRAIN)
    assert diagnosis is None or diagnosis.entry != ENTRY


@pytest.mark.parametrize(
    ("name", "program"), [("transformers", TRAINER), ("lightning", LIGHTNING)], ids=["transformers", "lightning"]
)
def test_the_loops_of_frameworks_turn_autograd_off_themselves(tmp_path, name, program):
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    diagnosis, _ = diagnosis_of(tmp_path, HEAD + program)
    assert diagnosis is None or diagnosis.entry != ENTRY


def test_source_is_found_where_the_program_was_copied_to(tmp_path):
    _, script = diagnosis_of(tmp_path, HEAD + PLAIN + TRAIN)
    copied = tmp_path / "checkout" / "train.py"
    copied.parent.mkdir()
    script.rename(copied)
    job = [str(tmp_path / "job")]
    assert postmortem(job, naming=naming_of()).first_failure.diagnosis.status == "supported"
    found = postmortem(job, naming=naming_of(sources=[Path(copied.parent)])).first_failure.diagnosis
    assert (found.entry, found.status) == (ENTRY, "confirmed")
