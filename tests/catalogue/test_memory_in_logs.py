"""Memory that ran out: what the lines above and the code that failed tell of where it went."""

import pytest

from aggregator.catalogue.growth import memory_growth
from aggregator.pipeline import postmortem
from parsers.lexicon import default_lexicon
from parsers.records import Role, Signal

OOM = """\
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacity of 79.11 GiB of \
which 612.50 MiB is free. Including non-PyTorch memory, this process has 78.50 GiB memory in use. Of the allocated \
memory 76.91 GiB is allocated by PyTorch, and 820.14 MiB is reserved by PyTorch but unallocated.
"""
MODULE = (
    ("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "_call_impl", "return forward_call(*args)"),
    ("/job/model.py", "forward", "x = self.blocks(x)"),
)
STEPS = "".join(f"step {step} loss 2.{step}\n" for step in range(10, 90, 10))
JOINED, NO_GRAD = "eval-oom-predictions-accumulated", "eval-oom-missing-no-grad"


def traceback(*frames, error=OOM):
    told = "".join(f'  File "{file}", line 12, in {name}\n    {code}\n' for file, name, code in frames)
    return f"Traceback (most recent call last):\n{told}{error}"


def failure_of(tmp_path, text, name="rank0.log"):
    log = tmp_path / "job" / name
    log.parent.mkdir()
    log.write_text(text)
    return postmortem([str(log.parent)]).first_failure


def evaluation(line):
    return traceback(("/job/train.py", "main", "auc = evaluate(model)"), ("/job/train.py", "evaluate", line))


@pytest.mark.parametrize(
    "line",
    [
        "feats = torch.cat(feats)",
        "probs = torch.cat(all_probs, dim=0).cpu()",
        "out = torch.stack([r.logits for r in rows])",
        "self.scores = torch.cat([self.scores, new], dim=0)",
        "table = np.concatenate(",
        "bufs = [torch.empty_like(preds) for _ in range(world_size)]",
    ],
)
def test_outputs_that_the_evaluation_stored_and_joins_are_named(tmp_path, line):
    failure = failure_of(tmp_path, STEPS + "Running evaluation\n" + evaluation(line))
    assert failure.diagnosis.entry == JOINED
    assert any(line in said for said in failure.diagnosis.matched)


@pytest.mark.parametrize("line", ["x = torch.cat([image, mask], dim=1)", "out = model(torch.cat([a, b], dim=1))"])
def test_inputs_that_are_put_together_are_no_stored_outputs(tmp_path, line):
    assert failure_of(tmp_path, STEPS + evaluation(line)).diagnosis.entry == NO_GRAD


def test_what_a_model_joins_is_its_own(tmp_path):
    inside = (MODULE[0], ("/job/model.py", "forward", "x = torch.cat(skips, dim=1)"))
    text = traceback(("/job/train.py", "evaluate", "out = model(batch)"), *inside)
    assert failure_of(tmp_path, STEPS + text).diagnosis.entry == NO_GRAD


@pytest.mark.parametrize(
    ("functions", "phase"),
    [
        (["main", "train_step", "predict_value"], "forward"),
        (["training_step", "infer_noise"], "forward"),
        (["train_epoch", "predict_x0"], "forward"),
        (["train_and_evaluate", "step"], "forward"),
        (["train", "evaluate"], "evaluation"),
        (["train", "predict_loop"], "evaluation"),
        (["main", "predict_mask"], "evaluation"),
        (["main", "score_dev"], "evaluation"),
        (["pretrain", "estimate_loss"], "evaluation"),
        (["main", "copy_to_dev"], "forward"),
    ],
)
def test_a_step_of_training_is_training_whatever_it_calls(tmp_path, functions, phase):
    frames = [("/job/train.py", name, "y = f(x)") for name in functions]
    failure = failure_of(tmp_path, STEPS + traceback(*frames, *MODULE))
    assert failure.phase == phase
    assert (failure.diagnosis.entry == NO_GRAD) == (phase == "evaluation")


def test_a_log_without_ranks_tells_its_steps_and_its_evaluation_too(tmp_path):
    text = STEPS + "Running evaluation\n" + traceback(("/job/train.py", "assess", "y = model(x)"), *MODULE)
    failure = failure_of(tmp_path, text, "train.out")
    assert (failure.ranks, failure.step, failure.diagnosis.entry) == ((), 80, NO_GRAD)
    assert any(said.startswith("8 training steps") for said in failure.diagnosis.matched)


def memory_log(figures, form="step {} loss 2.1 mem={:.2f}GiB\n"):
    return "".join(form.format(100 * step, figure) for step, figure in enumerate(figures, 1))


TRAINING = traceback(("/job/train.py", "main", "out = model(x)"), *MODULE)


@pytest.mark.parametrize("name", ["rank0.log", "train.out"])
def test_memory_that_grows_from_step_to_step_is_a_leak(tmp_path, name):
    failure = failure_of(tmp_path, memory_log(20 + 1.1 * step for step in range(50)) + TRAINING, name)
    assert failure.diagnosis.entry == "oom-leak-graph-retained"
    assert any("had grown by 11" in said for said in failure.diagnosis.matched)


@pytest.mark.parametrize("figures", [[52.0] * 20, [52, 55, 51, 54] * 5, [52.0] * 18 + [52.1, 77.0]])
def test_memory_that_does_not_grow_is_a_spike(tmp_path, figures):
    failure = failure_of(tmp_path, memory_log(figures) + TRAINING)
    assert failure.diagnosis.entry == "activation-memory-spike"
    assert any("did not grow" in said for said in failure.diagnosis.matched)


FORMS = [
    "step {} loss 2.1 mem_alloc {:.2f}GiB max 79.00GiB",
    "Epoch: [0]  [ {}/9000]  eta: 0:14:03  loss: 6.9  time: 0.4  data: 0.0  max mem: {:.0f}",
    "step:  {}  loss:  8.12345  grad_norm:  1.2  memory: {:.2f}GiB(12.50%)  tps: 1,234",
    '{{"global_step": {}, "loss": 2.5, "gpu_mem_gb": {:.2f}, "cpu_mem_gb": 100.0}}',
    "it={} loss=2.113 mem={:.1f}G",
    "step {} host mem 200 GB gpu mem {:.1f} GB",
    "step {} loss 2.1 free mem 4.1GB memory_allocated: {:.0f}",
    "step {} | loss 2.1 | max mem (MB) {:.0f}",
]
OTHERS = [
    "step {} loss 2.1 cpu mem {:.1f}GB",
    "step {} loss 2.1 mem {:.1f}%",
    "step {} loss {:.1f}",
    "step {} free_mem={}",
]


def marks(form):
    for number in range(1, 12):
        text = form.format(number, 1000.0 + 10 * number)
        message, fields = next(hit for hit in default_lexicon().match(text) if hit[0].role is Role.PROGRESS)
        yield Signal(message.id, Role.PROGRESS, 0, number, number, text, fields=fields)


@pytest.mark.parametrize("form", FORMS)
def test_figures_of_memory_are_known_in_many_forms(form):
    assert memory_growth([*marks(form)]) == 6.7


@pytest.mark.parametrize("form", OTHERS)
def test_other_figures_are_not(form):
    assert memory_growth([*marks(form)]) is None


def test_a_change_of_units_is_no_fall():
    told = [f"step {n} mem {900 + 50 * n} MiB" for n in range(2)] + [f"step {n} mem 1.{n} GiB" for n in range(2, 8)]
    signals = [
        Signal("prog.step", Role.PROGRESS, 0, n, n, text, fields={"step": str(n)}) for n, text in enumerate(told)
    ]
    assert memory_growth(signals) > 0
