"""Hand-made results, as the verbs return them."""

from ckptcheck.finding import Cause, Compared, Finding, NotJudged, Place, Result, Severity, Verdict

_WEIGHT = "blocks.0.fc.weight"
_ENVIRONMENT = {"torch": "2.13.0", "python": "3.11.7", "device": "cpu", "threads": 2}

CLEAN = Result(
    command="verify",
    verdict=Verdict.PASS,
    compared=Compared(steps=10, parameters=12, state_tensors=36, bytes=123456),
    not_judged=(NotJudged("CK609", "--quick left the repeat out"), NotJudged("CK611", "--quick left the repeat out")),
    environment=_ENVIRONMENT,
    parts={
        "trajectory": [],
        "crossed": {"covered": ["epoch end"], "not_covered": ["second save", "second resume", "an overflow"]},
        "runs": [
            {"name": "reference", "steps": 20, "seconds": 3.21},
            {"name": "resumed@10", "steps": 10, "seconds": 2.9},
        ],
        "magnitudes": [],
        "policy": "exact",
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
        "trajectory": [
            {"run": "resumed@10", "step": 10, "stage": "load", "parameter": _WEIGHT, "key": "exp_avg"},
            {"run": "resumed@10", "step": 10, "stage": "load", "parameter": _WEIGHT, "key": "exp_avg_sq"},
            {"run": "resumed@10", "step": 11, "stage": "state", "parameter": _WEIGHT, "key": "exp_avg"},
            {"run": "resumed@10", "step": 11, "stage": "param", "parameter": _WEIGHT, "key": None},
        ],
        "crossed": {"covered": ["epoch end"], "not_covered": ["second save"]},
        "runs": [{"name": "reference", "steps": 20, "seconds": 3.21}],
        "magnitudes": [
            {"run": "resumed@10", "step": 10, "stage": "load", "parameter": _WEIGHT, "key": "exp_avg",
             "differing": 4096, "numel": 4096, "max_abs": 0.00123, "max_abs_at": [0, 17], "rel_l2": 1.0,
             "max_ulp": None, "nan": 0},
            {"run": "resumed@10", "step": 11, "stage": "param", "parameter": _WEIGHT, "key": None,
             "differing": 4095, "numel": 4096, "max_abs": 1.2e-07, "max_abs_at": [3, 5], "rel_l2": 3.4e-05,
             "max_ulp": 8, "nan": 0},
        ],
    },
)  # fmt: skip

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
    parts={"magnitudes": [{"step": 1, "stage": "inputs", "parameter": None, "key": None, "reason": "only digests"}]},
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
