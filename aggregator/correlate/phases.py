"""What the rank was doing when it failed: from its stack, else from what it said before."""

from __future__ import annotations

import re
from collections.abc import Sequence

from parsers.later import later
from parsers.records import ExceptionInfo, Frame

_LIBRARY = later(r"(?:site-packages|dist-packages|/lib/python\d|<frozen|<string>|\.\./|/torch/|\.p(?:yx|xi)$)")
_EVALUATION = later(
    r"(?:^|_|\b)(?:eval|evaluat\w*|valid\w*|val|test|predict\w*|infer\w*|generate)(?:_|\b|$)"
    r"|\b(?:\w+_)?estimate_(?:\w+_)?loss(?:es)?$|(?:score|run|check|loss|on|over)_dev(?:_?set)?$"
    r"|\bdev(?:_?set)?(?:_(?:epoch|loop|step|loss|pass|score|batch))?$"
)
_TRAINING = later(r"(?:^|_|\b)(?:(?:pre)?train(?:ing|er)?|fit|learn|fine_?tune)(?:_|\b|$)")
_STEP_OF_TRAINING = later(r"(?:^|_|\b)train(?:ing)?_(?:\w+_)?(?:step|batch|iter(?:ation)?)(?:_|\b|$)")
_ONE_OUTPUT = later(r"(?:^|_|\b)(?:predict|infer)_(?!(?:epoch|loop|(?:data)?set|loader|all|split)(?:_|$))\w")
"""What a step of training may call too, to predict a value or a noise: in a training loop it is no evaluation."""
_CHECKPOINT = later(r"(?:save|checkpoint|ckpt|serialization|state_dict)")

# (phase, pattern on "file:function"), the first that fits the innermost fitting frame; innermost frames first.
_STACK = (
    (
        "checkpoint",
        later(r"checkpoint|ckpt|torch/serialization\.py|save_pretrained|safetensors|state_dict", re.IGNORECASE),
    ),
    (
        "data_loading",
        later(
            r"torch/utils/data/|collate|dataloader|/datasets?/|dataset\.py|__getitem__|load_batch|next_batch|webdataset"
            r"|data_collator|/data\.py|torchaudio|torchvision/io|soundfile|librosa|decord|/PIL/|cv2|lhotse|kaldi",
            re.IGNORECASE,
        ),
    ),
    ("backward", later(r"torch/_tensor\.py:backward|torch/autograd/|:backward$|_engine_run_backward")),
    (
        "optimizer",
        later(
            r"torch/optim/|optimizer\.py|deepspeed/runtime/engine\.py:(?:step|_take_model_step)$|:(?:adamw?|sgd|_init_group|optimizer_step|clip_grad\w*)$"
        ),
    ),
    (
        "init",
        later(
            r":init_process_group$|:_new_process_group_helper|rendezvous|:from_pretrained$|:set_device$"
            r"|cuda/__init__\.py:_lazy_init|:init_distributed|:setup_distributed|:fully_shard$|:_init_device"
            r"|:parse_args|argparse\.py"
        ),
    ),
    (
        "communication",
        later(r"torch/distributed/(?:distributed_c10d|c10d_logger)|:(?:all_reduce|barrier|all_gather\w*|broadcast)$"),
    ),
    ("forward", later(r"torch/nn/|:forward$|:_call_impl$|torch/nn/functional|:compute_loss$|:training_step$")),
)

_KIND_PHASE = {
    "dataloader_worker_died": "data_loading",
    "nan_loss": "forward",
    "shm_exhausted": "data_loading",
    "import_error": "init",
    "rendezvous_failure": "init",
    "config_error": "init",
    "collective_timeout": "communication",
    "collective_mismatch": "communication",
    "deadlock": "communication",
    "ib_error": "communication",
    "network_error": "communication",
    "nccl_error": "communication",
}


def user_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Frames outside installed packages and the standard library, outermost first."""
    return [frame for frame in frames if not _LIBRARY.search(frame.file)]


def location(exception: ExceptionInfo | None) -> str | None:
    """`file:line` of the user's innermost frame, else of the innermost one."""
    if exception is None:
        return None
    for frames in (exception.frames, exception.outer_frames):
        own = user_frames(frames)
        if own:
            return f"{own[-1].file}:{own[-1].line}"
    if exception.frames:
        return f"{exception.frames[-1].file}:{exception.frames[-1].line}"
    return None


_CODE = (
    ("backward", later(r"\.backward\(")),
    ("optimizer", later(r"\b(?:\w*optim\w*|opt|scaler|\w*engine)\.step\(")),
    ("checkpoint", later(r"\bsave\w*\(|save_checkpoint|load_checkpoint|torch\.load\(|state_dict\(")),
    (
        "evaluation",
        later(
            r"\b(?:[a-z]+_)*(?:evaluate|validate|eval_\w+|run_eval\w*|test_step|valid(?:ation)?_(?:step|batch|loop))\("
        ),
    ),
    (
        "data_loading",
        later(r"\bnext\(|\bfor \w+(?:, ?\w+)* in \w*(?:loader|batches|data)|\bbatch\[|\bsample\[|\brecord\["),
    ),
    ("communication", later(r"\b(?:all_reduce|all_gather|barrier|broadcast|reduce_scatter)\(")),
    (
        "init",
        later(r"(?:\bDDP|\bFSDP|\w*DataParallel|\bfully_shard|\.from_pretrained|\binit_process_group|\.set_device)\("),
    ),
    ("forward", later(r"\b(?:model|self\.model|net|module)\(|\bloss\w* ?= ")),
)
"""What a line of the user's own code was about; the innermost line that tells decides."""

_TEXT = (
    ("checkpoint", later(r"\b(?:checkpoint\w*|saving|ckpt)\b", re.IGNORECASE)),
    (
        "data_loading",
        later(
            r"\b(?:data ?sets?|data ?loader|batch(?:es)? from|tokeni[sz]\w+|decod\w+|(?:pre)?fetch\w*|download\w*"
            r"|record)\b|shard|reader\b|read_record|\bread(?:ing)? |\bnext batch\b",
            re.IGNORECASE,
        ),
    ),
    ("evaluation", later(r"\b(?:eval\w*|valid\w*)\b", re.IGNORECASE)),
)


def phase_of_code(code: str) -> str | None:
    """The phase that the source lines of a traceback show, innermost last."""
    for line in reversed(code.splitlines()):
        for phase, pattern in _CODE:
            if pattern.search(line):
                return phase
    return None


def phase_of_text(text: str) -> str | None:
    """What a line says that the rank was about to do."""
    return next((phase for phase, pattern in _TEXT if pattern.search(text)), None)


def names_evaluation(function: str) -> bool:
    """Whether a function is named for an evaluation, and not for training as well (`train_and_evaluate`)."""
    name = function.lower()
    return _EVALUATION.search(name) is not None and _TRAINING.search(name) is None


def _is_evaluating(own: Sequence[Frame]) -> bool:
    """Whether a stack runs through an evaluation: what a step of training calls is a part of that step."""
    training = False
    for name in (frame.function.lower() for frame in own):
        if _STEP_OF_TRAINING.search(name):
            return False
        if names_evaluation(name) and not (training and _ONE_OUTPUT.search(name)):
            return True
        training = training or _TRAINING.search(name) is not None
    return False


def phase_of_stack(exception: ExceptionInfo | None, *, collective: bool = False) -> str | None:
    """The phase that a stack shows, None where it shows none.

    A function of the user's named for evaluation outranks what was going on inside it, unless a step of training calls
    it. With `collective`, that a rank was inside a collective is taken for granted: what called it counts.
    """
    if exception is None:
        return None
    frames = (*exception.outer_frames, *exception.frames)
    own = user_frames(frames)
    inner = _innermost(frames, passing="communication" if collective else None)
    if inner == "checkpoint" or any(_CHECKPOINT.search(frame.function) for frame in own[-3:]):
        return "checkpoint"
    if _is_evaluating(own) or any(
        re.search(r"(?:evaluation_loop|prediction_step|_run_evaluate|validation_step|run_validation)", frame.function)
        for frame in frames
    ):
        return "evaluation" if inner != "init" else inner
    return inner


def _innermost(frames: Sequence[Frame], passing: str | None) -> str | None:
    for frame in reversed(frames):
        place = f"{frame.file}:{frame.function}"
        for phase, pattern in _STACK:
            if pattern.search(place):
                if phase == passing:
                    break
                return phase
    trains = any(_TRAINING.search(frame.function.lower()) for frame in frames)
    if frames and not trains and all(frame.function == "<module>" for frame in user_frames(frames)):
        return "init"
    return None


def phase_of_kind(kind: str) -> str | None:
    """The phase that a kind of failure implies by itself."""
    return _KIND_PHASE.get(kind)


_KIND_LAYER = {
    "cuda_oom": "software", "host_oom": "host", "shm_exhausted": "host", "gpu_ecc": "gpu", "gpu_lost": "gpu",
    "nvlink_error": "gpu", "gpu_xid": "gpu", "cuda_illegal_access": "software", "cuda_device_assert": "software",
    "cuda_error": "gpu", "ib_error": "network", "network_error": "network", "rendezvous_failure": "unknown",
    "nccl_error": "unknown", "collective_timeout": "unknown", "collective_mismatch": "software",
    "deadlock": "software", "python_exception": "software", "import_error": "software", "segfault": "software",
    "abort": "software", "killed": "unknown", "bus_error": "host", "dataloader_worker_died": "host",
    "data_error": "software", "nan_loss": "software", "disk_full": "storage", "storage_io": "storage",
    "checkpoint_corrupt": "storage", "time_limit": "scheduler", "preempted": "scheduler", "cancelled": "user",
    "node_failure": "host", "config_error": "user", "unknown": "unknown",
}  # fmt: skip


def layer_of(kind: str, told: str | None) -> str:
    """The layer a failure belongs to: as its message format says, else as its kind implies."""
    return told or _KIND_LAYER.get(kind, "unknown")
