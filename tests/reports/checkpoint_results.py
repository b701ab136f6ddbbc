"""Hand-made results about checkpoints, as `diff`, `inspect` and `check` return them."""

from dataclasses import replace

from ckptcheck.finding import Compared, Finding, NotJudged, Place, Result, Severity, Verdict
from tests.reports.results import HOSTILE_NAME

_NUMBERS = ("differing", "numel", "first_at", "max_abs", "max_abs_at", "rel_l2", "max_ulp", "median_ulp", "sign_flips",
            "nan", "inf", "signed_zeros", "nan_payloads", "rounded_through")  # fmt: skip
_REST = ("group", "beyond", "other", "left", "right", "left_dtype", "left_shape", "right_dtype", "right_shape")


def difference(section: str, parameter: str | None, key: str | None, kind: str = "changed", **more: object) -> dict:
    """An entry of `differences`; every key that is not given is null."""
    place = {"section": section, "parameter": parameter, "key": key, "kind": kind, "optimizer": None, "label": None}
    return place | dict.fromkeys((*_NUMBERS, *_REST)) | more


def tensors(dtype: str, shape: list[int], right: str = "") -> dict:
    """The dtype and shape of both sides."""
    return {"left_dtype": dtype, "left_shape": shape, "right_dtype": right or dtype, "right_shape": shape}


def numbers(counts: tuple[int, int], first_at: list[int], max_abs: object, rel_l2: object, ulp: object) -> dict:
    """What is measured of two tensors of which `counts` elements differ: so many of so many."""
    none = dict.fromkeys(("sign_flips", "nan", "inf", "signed_zeros", "nan_payloads"), 0)
    places = {"first_at": first_at, "max_abs_at": first_at}
    sizes = {"max_abs": max_abs, "rel_l2": rel_l2, "max_ulp": ulp, "median_ulp": ulp}
    return {"differing": counts[0], "numel": counts[1]} | places | sizes | none


def optimizer_pair(
    number: int, left: int | None, right: int | None, label: str | None = None, paired_by: str | None = "name"
) -> dict:
    """One optimizer that a side has."""
    labels = (label if place is not None else None for place in (left, right))
    labels = dict(zip(("left_label", "right_label"), labels, strict=True))
    return {"optimizer": number, "left": left, "right": right, **labels, "paired_by": paired_by}


def _section(name: str, tensors: int, values: int, nbytes: int, **apart: int) -> dict:
    none = {"differing": 0, "added": 0, "removed": 0, "tolerated": 0}
    return {"section": name, "tensors": tensors, "values": values, "bytes": nbytes} | none | apart


def _side(path: str, container: str, convention: str, step: int | None) -> dict:
    layout = {"container": container, "convention": convention}
    return {"path": path, "layout": layout, "bytes": 123456, "step": step, "section": None}


_PARTS = {
    "left": _side("run/step_10.pt", "torch-zip", "plain", 10),
    "right": _side("run/dcp_10", "dcp", "torch-dcp", None),
    "identical_content": True,
    "identical_content_different_container": True,
    "unread": 0,
    "gate": "content",
    "statistics": True,
    "tolerance": None,
    "cast": None,
    "optimizers": [optimizer_pair(0, 0, 0)],
    "paired_by": ["name"],
    "sections": [_section("model", 12, 0, 49152), _section("optimizer", 36, 18, 98304), _section("rng", 1, 0, 5056)],
    "groups": [],
    "differences": [],
    "not_compared": [],
    "notes": ["module. was stripped from the names on the left"],
}
MATCHING = Result("diff", Verdict.PASS, Compared(parameters=12, state_tensors=36, bytes=152512), parts=_PARTS)

_DIFFERENCES = [
    difference("model", "head.weight", None, "shape", left_dtype="float32", left_shape=[10, 64],
               right_dtype="float32", right_shape=[12, 64]),
    difference("model", "embed.weight", None, "dtype", **tensors("float32", [50, 64], "bfloat16"),
               **numbers((3100, 3200), [0, 0], 0.00389, 0.0016, None), rounded_through="bfloat16"),
    difference("model", "old.bias", None, "renamed", other="new.bias", **tensors("float32", [64])),
    difference("model", "a.weight", None, "moved", other="b.weight", **tensors("float32", [64])),
    difference("model", "scale", None, **tensors("float32", []), left=1.5, right=-1.5,
               **numbers((1, 1), [], 3.0, 2.0, 2130706432) | {"sign_flips": 1}),
    difference("optimizer", None, "lr", optimizer=0, group=0, left=0.001, right=0.0005),
    difference("optimizer", None, "lr", optimizer=1, label="optim_D", group=0, left=0.1, right=0.10000000000000002),
    difference("optimizer", None, "lr", "added", optimizer=2, group=0, right=0.1),
    difference("optimizer", "fc.bias", "group", "moved", optimizer=0, group=0, left=0, right=1),
    difference("optimizer", "new.bias", "group", "moved", optimizer=0, group=1, right=1),
    difference("optimizer", None, "param_groups", "moved", optimizer=1, label="optim_D",
               left="group 0: a, b", right="group 0: b, a"),
    difference("optimizer", "fc.weight", "step", optimizer=0, group=0, **tensors("float32", []), left=5.0, right=10.0,
               **numbers((1, 1), [], 5.0, 1.0, 8388608)),
    difference("optimizer", "fc.bias", "exp_avg", "moved", optimizer=0, group=0, **tensors("float32", [64]),
               other="optimizer 1/fc.bias/exp_avg"),
    difference("optimizer", "fc.weight", "exp_avg", optimizer=0, group=0, **tensors("float32", [64, 64]),
               **numbers((1, 4096), [0, 17], 1.16e-10, 2.3e-9, 1)),
    difference("optimizer", "fc.weight", "exp_avg_sq", optimizer=0, group=0, **tensors("float32", [64, 64]),
               **numbers((4096, 4096), [0, 0], 0.0123, 1.0, 1929850865) | {"nan": 2, "inf": 1, "max_abs_at": [3, 4]}),
    *(difference("optimizer", f"blocks.{number}.bias", key, "removed", optimizer=0, group=1, left_dtype="float32",
                 left_shape=[64]) for number in range(6) for key in ("exp_avg", "exp_avg_sq")),
    difference("rng", None, "numpy", "added", right="('MT19937', ...)"),
    difference("rng", None, "python", differing=397, numel=624, left="position 624", right="position 3"),
    difference("progress", None, "epoch", left=3, right=4),
]  # fmt: skip
DIFFERENT = Result(
    "diff",
    Verdict.FAIL,
    Compared(parameters=12, state_tensors=24, bytes=152512),
    parts=_PARTS
    | {
        "right": _side("run/step_20.pt", "torch-zip", "plain", 20),
        "identical_content": False,
        "identical_content_different_container": False,
        "tolerance": {
            "rtol": 0.0,
            "atol": 0.0,
            "applies_to": [],
            "roles": {"state:bfloat16": {"rtol": 0.01, "atol": 1e-06}},
        },
        "cast": {"dtype": "bfloat16", "equal": 3},
        "optimizers": [
            optimizer_pair(0, 0, 0, "optim_G"),
            optimizer_pair(1, 1, 1, "optim_D", "position"),
            optimizer_pair(2, None, 2, paired_by=None),
        ],
        "paired_by": ["name", "position"],
        "sections": [
            _section("model", 12, 0, 49152, differing=5),
            _section("optimizer", 24, 18, 98304, differing=6, removed=12, added=1) | {"tolerated": 3},
            _section("rng", 1, 1, 5056, differing=1, added=1),
            _section("progress", 0, 2, 0, differing=1),
        ],
        "groups": [
            {"parameter": "fc.bias", "optimizer": 0, "left_group": 0, "right_group": 1},
            {"parameter": "new.bias", "optimizer": 0, "left_group": None, "right_group": 1},
        ],
        "differences": _DIFFERENCES,
        "not_compared": ["optimizer/fc.weight/scale: a tensor of dtype float6, whose elements have no known size"],
    },
)
NOTHING = Result(
    "diff",
    Verdict.INCONCLUSIVE,
    parts=_PARTS | {"sections": [], "identical_content": False, "identical_content_different_container": False,
                    "notes": [], "not_compared": ["nothing matches --only optmizer/*"]},
)  # fmt: skip
GATED = replace(
    DIFFERENT,
    verdict=Verdict.PASS,
    findings=(
        Finding("CK106", "stale-bytes", Severity.WARNING, "the moments of 4 parameters are those of the earlier one",
                Place(path="run/step_20.pt", optimizer=0), {"count": 4}, "look at how the state is saved"),
    ),
    not_judged=(NotJudged("CK102", "right: the checkpoint carries no checksums to hold its bytes against"),),
    parts=DIFFERENT.parts | {"gate": "findings", "differences": _DIFFERENCES[:1]},
)  # fmt: skip


def _tensor(section: str, name: str | None, key: str | None, shape: list[int], **more: object) -> dict:
    whole = {"section": section, "name": name, "key": key, "dtype": "float32", "shape": shape, "bytes": 256,
             "device": "cuda:0", "requires_grad": None, "optimizer": None, "group": None, "tied": [],
             "storage": {"file": "", "key": "0", "offset": 0}, "value": None}  # fmt: skip
    return whole | more


def _value(section: str, key: str, value: object, optimizer: int | None = None, group: int | None = None) -> dict:
    return {"section": section, "name": None, "key": key, "value": value, "optimizer": optimizer, "group": group,
            "digest": None}  # fmt: skip


_HYPER = {"lr": 0.001, "betas[0]": 0.9, "betas[1]": 0.999, "eps": 1e-08, "weight_decay": 0.01, "foreach": None}
INSPECTED = Result(
    "inspect",
    Verdict.PASS,
    parts={
        "path": "run/step_10.pt",
        "layout": {"container": "torch-zip", "convention": "plain"},
        "bytes": 1234567,
        "step": 10,
        "recorded_step": "step 10",
        "world_size": None,
        "sections": [
            {"section": "model", "tensors": 3, "values": 0, "bytes": 768, "dtypes": {"float32": 2, "int64": 1}},
            {"section": "optimizer", "tensors": 3, "values": 6, "bytes": 516, "dtypes": {"float32": 3}},
            {"section": "progress", "tensors": 0, "values": 1, "bytes": 0, "dtypes": {}},
        ],
        "optimizers": [
            {"optimizer": 0, "class": None, "classes": ["AdamW", "Adam"], "class_certain": False, "groups": 8,
             "parameters": 2, "with_state": 1, "state_keys": {"exp_avg": 1, "exp_avg_sq": 1, "step": 1},
             "steps": [{"step": 10, "parameters": 1}],
             "naming": {"source": "model-order", "certain": False, "reason": "two tensors have one shape"}},
        ],
        "groups": [
            {"optimizer": 0, "group": number, "parameters": ["fc.weight", "fc.bias"] if number == 0 else [],
             "hyperparameters": _HYPER} for number in range(8)
        ],
        "holds": ["2 parameters, 1 buffer", "state of 1 of 2 parameters in optimizer 0", "step or epoch"],
        "lacks": ["scheduler state", "position in the data", "generator states"],
        "tensors": [
            _tensor("model", "fc.weight", None, [8, 8], requires_grad=True, tied=["head.weight"]),
            _tensor("model", "fc.bias", None, [8]),
            _tensor("optimizer", "fc.weight", "exp_avg", [8, 8], optimizer=0, group=0),
            _tensor("optimizer", "fc.weight", "step", [], optimizer=0, group=0, bytes=4, value=10.0, device=None),
        ],
        "values": [
            *(_value("optimizer", key, value, 0, 0) for key, value in _HYPER.items()),
            _value("progress", "step", 10),
        ],
        "storage_bloat": [{"file": "", "key": "4", "bytes": 1048576, "used_bytes": 256}],
        "globals": [
            {"file": "", "name": "posix.system", "danger": "runs-code", "count": 1},
            {"file": "", "name": "my.Config", "danger": "unknown", "count": 2},
        ],
        "stripped": ["module."],
        "models": ["ema"],
        "unrecognised": ["args", "git_hash"],
        "notes": ["the step is taken from the optimizer's counters"],
    },
)  # fmt: skip

WHOLE = Result(
    "check",
    Verdict.PASS,
    Compared(bytes=7_654_321),
    not_judged=(NotJudged("CK102", "1234 bytes carry no checksum: trainer_state.json"),),
    parts={
        "path": "checkpoint-2",
        "layout": {"container": "folder", "convention": None},
        "files": [
            {"path": "optimizer.pt", "bytes": 7_660_000, "container": "torch-zip", "checksums": "on"},
            {"path": "trainer_state.json", "bytes": 1234, "container": "json", "checksums": "off"},
        ],
        "globals": [],
        "verified_bytes": 7_654_321,
        "purpose": None,
        "optimizers": [],
        "memory": None,
        "asked": {"select": ["CK"], "ignore": []},
        "required": [],
    },
)
DAMAGED = Result(
    "check",
    Verdict.FAIL,
    findings=(
        Finding("CK101", "unreadable-file", Severity.ERROR, "step_10.pt: cut short: 100 bytes promised, 60 are there",
                Place(path="step_10.pt"), {"count": 1}, "copy the file again, or go back to the checkpoint before it"),
    ),
    not_judged=(NotJudged("CK104", "the checkpoint could not be read"),),
    parts={"path": "step_10.pt", "layout": None, "files": [], "globals": [], "verified_bytes": 0, "purpose": None,
           "optimizers": [], "memory": None, "asked": {"select": ["CK"], "ignore": []}, "required": []},
)  # fmt: skip


def hostile(result: Result) -> Result:
    """The same with every text that comes from a file steering a terminal."""
    return replace(result, parts={key: _poisoned(part) for key, part in result.parts.items() if key != "gate"})


def _poisoned(part: object) -> object:
    if isinstance(part, dict):
        kept = ("section", "kind", "danger", "checksums")
        return {key: value if key in kept else _poisoned(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_poisoned(one) for one in part]
    return HOSTILE_NAME if isinstance(part, str) else part
