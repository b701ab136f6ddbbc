"""Hand-made results, as the verbs return them."""

from ckptcheck.finding import Cause, Compared, Finding, NotJudged, Place, Result, Severity, Verdict

_WEIGHT = "blocks.0.fc.weight"
_ENVIRONMENT = {
    "python": "3.11.7", "torch": "2.13.0", "platform": "Linux-6.1-x86_64-with-glibc2.36", "device": "cpu",
    "flags": {"num_threads": 2, "default_dtype": "torch.float32"}, "seed": 0, "resume_device": "cpu",
}  # fmt: skip
_EXACT = {"name": "exact", "rtol": 0.0, "atol": 0.0}
_CROSSED = {
    "covered": ["a resume in a fresh process", "a change of the learning rate"],
    "not_covered": ["a second resume in a row", "a second save", "a step without an update", "the end of an epoch"],
}


_NUMBERS = ("differing", "numel", "first_at", "max_abs", "max_abs_at", "rel_l2", "max_ulp", "median_ulp", "sign_flips",
            "nan", "inf")  # fmt: skip


def _run(name: str, seconds: float, status: str = "ended") -> dict[str, object]:
    return {"name": name, "status": status, "seconds": seconds, "training_s": 0.25, "recording_s": 0.01}


def _apart(step: int, section: str, parameter: str | None, key: str | None, **numbers: object) -> dict[str, object]:
    """Return an entry of a trajectory; at the load where `step` is 10."""
    place = {"run": "resumed@10", "step": step, "stage": "load" if step == 10 else section, "section": section}
    names = {"parameter": parameter, "key": key, "optimizer": 0 if section == "state" else None}
    sides = {"kind": "changed", "left": None, "right": None, "left_norm": None, "right_norm": None}
    return place | names | sides | dict.fromkeys(_NUMBERS) | numbers


_NOT_THERE = {"kind": "removed", "left_norm": 0.5, "reason": "on one side only"}
_NO_VALUES = {"reason": "traces hold digests and norms, no values: verify measures exactly"}
_TRAJECTORY = [
    _apart(10, "grad", _WEIGHT, None, **_NOT_THERE),
    _apart(10, "state", _WEIGHT, "exp_avg", **_NOT_THERE),
    _apart(10, "state", _WEIGHT, "exp_avg_sq", **_NOT_THERE),
    _apart(11, "state", _WEIGHT, "exp_avg", differing=4096, numel=4096, first_at=[0, 0], max_abs=0.00123,
           max_abs_at=[0, 17], rel_l2=1.0, max_ulp=1929850865, median_ulp=15073280, sign_flips=853, nan=0, inf=0),
    _apart(11, "state", _WEIGHT, "step", differing=1, numel=1, first_at=[], max_abs=10.0, max_abs_at=[],
           rel_l2=0.909, max_ulp=29360128, median_ulp=29360128, sign_flips=0, nan=0, inf=0),
    _apart(11, "param", _WEIGHT, None, differing=4095, numel=4096, first_at=[0, 0], max_abs=1.2e-07,
           max_abs_at=[3, 5], rel_l2=3.4e-05, max_ulp=8, median_ulp=2, sign_flips=0, nan=0, inf=0),
    _apart(12, "param", _WEIGHT, None, differing=4096, numel=4096, first_at=[0, 0], max_abs=2.5e-07,
           max_abs_at=[3, 5], rel_l2=7.1e-05, max_ulp=16, median_ulp=3, sign_flips=0, nan=2, inf=0),
]  # fmt: skip

CLEAN = Result(
    command="verify",
    verdict=Verdict.PASS,
    compared=Compared(steps=10, parameters=12, state_tensors=36, bytes=123456),
    findings=(
        Finding(
            code="CK613",
            name="accumulated-gradients-lost",
            severity=Severity.WARNING,
            message="gradients of 12 parameters left over when it was saved are not there after the load; "
            "without effect on the steps that follow",
            where=Place(step=10, stage="load"),
            evidence={"without_effect": True, "run": "resumed@10"},
            fix="none needed for these steps",
        ),
    ),
    not_judged=(NotJudged("CK609", "--quick left the repeat out"), NotJudged("CK611", "--quick left the repeat out")),
    environment=_ENVIRONMENT,
    parts={
        "target": "train.py",
        "steps": 20,
        "resume_at": [10],
        "policy": _EXACT,
        "trajectory": [],
        "magnitudes": [],
        "crossed": _CROSSED,
        "runs": [_run("reference", 3.21), _run("resumed@10", 2.9)],
    },
)

BROKEN = Result(
    command="verify",
    verdict=Verdict.FAIL,
    compared=Compared(steps=10, parameters=12, state_tensors=36, bytes=123456),
    first_divergence=Place(parameter=_WEIGHT, key="exp_avg", optimizer=0, group=1, step=10, stage="load", rank=0),
    cause=Cause("CK202", "certain"),
    findings=(
        Finding(
            code="CK202",
            name="optimizer-state-missing-for-parameter",
            severity=Severity.ERROR,
            message=f"after the load {_WEIGHT} has no optimizer state; 11 of 12 parameters have theirs",
            where=Place(parameter=_WEIGHT, key="exp_avg", optimizer=0, group=1, step=10, stage="load", rank=0),
            evidence={"missing": ["exp_avg", "exp_avg_sq", "step"], "parameters_with_state": 11},
            fix="Save optimizer.state_dict() whole, and load it after the parameters are in their groups.",
        ),
        Finding(
            code="CK205",
            name="rng-state-absent",
            severity=Severity.WARNING,
            message="the checkpoint holds no generator state of numpy",
            where=Place(path="work/checkpoint.pt"),
            fix="Save numpy.random.get_state().",
        ),
    ),
    not_judged=(NotJudged("CK608", "the run has no gradient scaler"),),
    environment=_ENVIRONMENT,
    parts={
        "target": "train.py",
        "policy": _EXACT,
        "trajectory": _TRAJECTORY,
        "magnitudes": _TRAJECTORY[:-1],
        "crossed": _CROSSED,
        "runs": [_run("reference", 3.21), _run("repeat", 3.3), _run("resumed@10", 2.9),
                 _run("reference-again-for-resumed@10", 4.2), _run("resumed@10-again", 4.1)],
    },
)  # fmt: skip

RAISED = Result(
    command="verify",
    verdict=Verdict.FAIL,
    first_divergence=Place(parameter=_WEIGHT, key="exp_avg_sq", optimizer=0, step=10, stage="load"),
    cause=Cause("CK203", "certain"),
    findings=(
        Finding(
            code="CK203",
            name="optimizer-state-partial",
            severity=Severity.ERROR,
            message=f"{_WEIGHT} lacks exp_avg_sq after the load; the other keys are there",
            where=Place(parameter=_WEIGHT, key="exp_avg_sq", optimizer=0, step=10, stage="load"),
            evidence={"missing_keys": ["exp_avg_sq"], "raised": "KeyError: 'exp_avg_sq' (in step 11)"},
            fix="save every key of the optimizer's state for this parameter",
        ),
    ),
    not_judged=(NotJudged("CK601", "no parameter was compared"),),
    environment=_ENVIRONMENT,
    parts={
        "policy": _EXACT,
        "trajectory": _TRAJECTORY[:3],
        "magnitudes": _TRAJECTORY[:3],
        "crossed": _CROSSED,
        "runs": [_run("reference", 3.21), _run("resumed@10", 2.9, "raised")],
    },
)

APART = Result(
    command="compare",
    verdict=Verdict.FAIL,
    compared=Compared(steps=10, parameters=12, state_tensors=36, bytes=123456),
    first_divergence=Place(parameter=_WEIGHT, step=14, stage="grad"),
    cause=Cause("CK606", "likely"),
    findings=(
        Finding("CK606", "gradient-diverged", Severity.ERROR, f"the gradient of {_WEIGHT} differs first, at step 14",
                Place(parameter=_WEIGHT, step=14, stage="grad"), {}, "compare the environments"),
        *(Finding("CK614", "environment-changed", Severity.WARNING, f"threads differ, said {number} times", Place())
          for number in range(8)),
    ),
    environment={"left": {"run": "save", "torch": "2.13.0", "python": "3.11.7", "device": "cpu"},
                 "right": {"run": "resume", "torch": "2.13.0", "python": "3.11.7", "device": "cuda"}},
    parts={
        "left": "left", "right": "right", "steps": [11, 20],
        "trajectory": [_apart(14, "grad", _WEIGHT, None, run="right", **_NO_VALUES)],
    },
)  # fmt: skip

SAVED = Result(
    command="save",
    verdict=Verdict.PASS,
    environment=_ENVIRONMENT,
    parts={"checkpoint": "ckpt", "step": 10, "target": "train.py", "trace": None, "own_store": False, "seconds": 3.2},
)

NOISY = Result(
    command="verify",
    verdict=Verdict.INCONCLUSIVE,
    compared=Compared(steps=20, parameters=12, state_tensors=36, bytes=123456),
    first_divergence=Place(step=1, stage="inputs"),
    cause=Cause("CK611", "certain"),
    findings=(
        Finding(
            code="CK611",
            name="nondeterministic-baseline",
            severity=Severity.ERROR,
            message="two uninterrupted runs differ from step 1 on, stage inputs",
            where=Place(step=1, stage="inputs"),
            fix="Seed the shuffling of the data: random.shuffle draws from python's generator, which nothing seeds.",
        ),
    ),
    parts={"magnitudes": [_apart(1, "inputs", None, "0", reason="only digests")]},
)

REFUSED = Result(command="verify", verdict=Verdict.ERROR, error="no file train.py; name one that exists")

HOSTILE_NAME = "w\x1b[31m\x9b1m\u202e\r\n\x7f[bold red]::error::\udc80é"
HOSTILE = Result(
    command="compare",
    verdict=Verdict.FAIL,
    compared=Compared(steps=1, parameters=1),
    first_divergence=Place(parameter=HOSTILE_NAME, key=HOSTILE_NAME, step=1, stage="param"),
    cause=Cause("CK610", "unknown"),
    findings=(
        Finding(
            code="CK610",
            name="unexplained-divergence",
            severity=Severity.ERROR,
            message=f"{HOSTILE_NAME} differs",
            where=Place(path=HOSTILE_NAME, parameter=HOSTILE_NAME, step=1, stage="param"),
            evidence={HOSTILE_NAME: HOSTILE_NAME, "left": float("nan"), "right": float("-inf")},
            fix=f"look at {HOSTILE_NAME}",
        ),
    ),
    not_judged=(NotJudged("CK601", HOSTILE_NAME),),
    environment={"python": HOSTILE_NAME},
    parts={
        "trajectory": [{"run": HOSTILE_NAME, "step": 1, "stage": HOSTILE_NAME, "parameter": HOSTILE_NAME, "key": None}],
        "crossed": {"covered": [HOSTILE_NAME], "not_covered": [HOSTILE_NAME]},
        "runs": [{"name": HOSTILE_NAME, "steps": 1, "seconds": 0.5}],
        "magnitudes": [{"step": 1, "stage": "param", "parameter": HOSTILE_NAME, "key": None, "reason": HOSTILE_NAME}],
        "note": HOSTILE_NAME,
    },
)
