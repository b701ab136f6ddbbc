"""Hand-made results of `check`, as it returns them for a checkpoint that a training shall go on from."""

from dataclasses import replace
from typing import Any

from ckptcheck.finding import Compared, Finding, NotJudged, Place, Result, Severity, Verdict

_ROW = {"label": None, "class_certain": True, "groups": 1, "orphans": [], "steps": [],
        "state_keys": {"step": 4, "exp_avg": 4, "exp_avg_sq": 3}}  # fmt: skip
_PARTS = {
    "path": "run/last.pt",
    "chosen": None,
    "layout": {"container": "torch-zip", "convention": "plain"},
    "files": [{"path": "", "bytes": 3_400_000_000, "container": "torch-zip", "checksums": "on"}],
    "globals": [],
    "verified_bytes": 3_399_000_000,
    "purpose": {"asked": "auto", "judged_for": "resume", "reason": "it holds optimizer state"},
    "optimizers": [
        {"optimizer": 0, "class": "AdamW", "classes": ["AdamW"], "parameters": 4, "with_state": 4,
         "naming": {"source": "param_names", "certain": True, "reason": "the groups list param_names"}, **_ROW},
        {"optimizer": 1, "class": None, "classes": ["torchao.Adam8bit", "torchao.AdamW8bit"], "parameters": 1,
         "with_state": 0, "naming": {"source": "model-order", "certain": False, "reason": "1 index fits"}, **_ROW},
    ],
    "memory": {
        "weights_bytes": 800_000_000, "optimizer_bytes": 1_600_000_000, "fresh_bytes": 2_400_000_000,
        "loaded_bytes": 3_300_000_000, "peak_bytes": 4_100_000_000, "extra_bytes": 1_700_000_000,
        "duplicates": [{"what": "averaged weights", "bytes": 800_000_000},
                       {"what": "unused by any tensor", "bytes": 9}],
        "devices": {"cuda:0": 2_400_000_000, "cpu": 100},
    },
    "asked": {"select": ["CK"], "ignore": []},
    "required": [],
}  # fmt: skip
INCOMPLETE = Result(
    "check",
    Verdict.FAIL,
    Compared(parameters=4, state_tensors=11, bytes=3_399_000_000),
    findings=(
        Finding("CK203", "optimizer-state-partial", Severity.ERROR,
                "head.bias has exp_avg, step and lacks exp_avg_sq: every AdamW keeps it",
                Place(parameter="head.bias", key="exp_avg_sq", optimizer=0, group=1), {"missing_keys": ["exp_avg_sq"]},
                "save every key of the optimizer's state for this parameter"),
        Finding("CK205", "rng-state-absent", Severity.WARNING, "there is no state of any generator",
                Place(path="run/last.pt"), {"missing": ["torch", "numpy", "python"]}, "save them with the rest"),
        Finding("CK207", "data-position-absent", Severity.INFO,
                "nothing says where in the data the training stood; all that is recorded is step",
                Place(path="run/last.pt"), {}, "save the data loader's state"),
    ),
    not_judged=(NotJudged("CK501", "1 tensor could not be read"),),
    parts=_PARTS,
)  # fmt: skip
WARNED = replace(INCOMPLETE, verdict=Verdict.PASS, findings=INCOMPLETE.findings[1:], not_judged=())


def target(**more: Any) -> dict[str, Any]:
    """The part of a dry-run whose own load took everything."""
    return {
        "target": "train.py:build", "how": "the target's own load", "loaded": True, "raised": None, "not_loaded": None,
        "parameters": 4, "parameters_not_loaded": [], "optimizers": 1,
        "pairs": [{"optimizer": 0, "class": "AdamW", "file": 0, "named": True}], "left_out": [],
        "judged": ["CK201", "CK202", "CK301", "CK302", "CK304", "CK306", "CK309", "CK601"],
    } | more  # fmt: skip


def member(number: int, **more: Any) -> dict[str, Any]:
    """A row of the series: the checkpoint of one epoch of ten steps."""
    return {
        "path": f"run/epoch_{number}.pt", "step": 10 * number,
        "counters": {"updates": 10.0 * number, "schedule": 10 * number}, "parameters": 5,
        "bytes": 3_400_000_000 + number, "checked": False, "damage": [], "not_read": None,
    } | more  # fmt: skip


_UNREAD: dict[str, Any] = {"step": None, "counters": {}, "parameters": None, "bytes": None}
SERIES = [
    *(member(number) for number in range(2, 10)),
    member(10, **_UNREAD, damage=["the save ended before it wrote 'data.pkl'"]),
    member(11, **_UNREAD, not_read="is a TorchScript program"),
    member(12, checked=True),
]
FIT = replace(
    WARNED,
    findings=(),
    parts=_PARTS
    | {
        "optimizers": _PARTS["optimizers"][:1],
        "memory": _PARTS["memory"] | {"peak_bytes": 2_400_000_000, "extra_bytes": 0, "duplicates": [], "devices": {}},
        "target": target(),
        "series": SERIES,
        "older_not_read": 30,
    },
)
UNNAMED = replace(
    WARNED,
    not_judged=tuple(NotJudged(code, "the file has no names for 2 parameters") for code in ("CK301", "CK302")),
    parts=FIT.parts
    | {
        "series": SERIES[-3:],
        "older_not_read": 0,
        "target": target(
            how="torch's load_state_dict",
            judged=["CK202", "CK304", "CK309"],
            optimizers=2,
            parameters_not_loaded=["base.weight", "base.bias"],
            left_out=["random generators", "data"],
            pairs=[
                {"optimizer": 0, "class": "AdamW", "file": 0, "named": False},
                {"optimizer": 1, "class": None, "file": None, "named": False},
            ],
        ),
    },
)
UNTRIED = replace(
    FIT,
    parts=_PARTS
    | {
        "target": target(
            how=None,
            loaded=False,
            judged=["CK301", "CK302", "CK304"],
            not_loaded="its pickles name functions that can run code, and the target's own load would execute them",
        )
    },
)
_LOST = [
    Finding("CK202", "optimizer-state-missing-for-parameter", Severity.ERROR,
            f"blocks.{number}.bias has no optimizer state; blocks.{number}.weight, which is trained with it, has "
            "exp_avg, exp_avg_sq, step", Place(parameter=f"blocks.{number}.bias", optimizer=0), {},
            "look for what drops this parameter's entry from the saved state; its moments restart from zero")
    for number in range(30)
]  # fmt: skip
FLOODED = replace(
    INCOMPLETE,
    findings=(
        *_LOST,
        Finding("CK601", "load-not-faithful", Severity.ERROR, "the target's own load raised: KeyError: 'ema'", Place(),
                {}, "load what the file holds"),
        replace(_LOST[0], severity=Severity.INFO, message="extra.bias has no state: never trained, or lost"),
    ),
    parts=_PARTS | {"target": target(loaded=False, raised="KeyError: 'ema' (train.py:31)")},
)  # fmt: skip
RELEASED = replace(
    FIT,
    parts=_PARTS
    | {
        "purpose": {"asked": "release", "judged_for": "release", "reason": "--for release"},
        "optimizers": [],
        "memory": None,
    },
)
DEMANDED = replace(
    FIT,
    verdict=Verdict.FAIL,
    not_judged=(NotJudged("CK308", "it was left out by --select or --ignore"), NotJudged("CK603", "no such rule")),
    parts=FIT.parts | {"required": ["CK308", "CK603"]},
)
