"""Parts of a result made by hand, with everything that a page can show."""

from typing import Any

RUN = "resumed@10"
NAMES = (
    "embed.weight",
    *(f"layers.{layer}.{part}.weight" for layer in range(12) for part in ("attn", "mlp")),
    "head.bias",
)
STAGES = (
    "rng",
    "hyperparameters",
    "inputs",
    "buffers",
    "loss",
    "grad",
    "scaler",
    "state",
    "param",
    "schedule",
    "ema",
    "data",
    "extra",
)
HOSTILE = (
    "</script><img src=x onerror=\"document.title='hit'\">",
    "<!--<script>document.title='hit'</script>",
    "\u202eevil\u2066\x00\x1b[31m\u2028\u2029\x7f",
    "x" * 10_000,
    "javascript:alert(1)",
    "@@data@@ ${document.title='hit'} {{7*7}} &lt;b&gt;",
    "\ud800 alone",
)


def row(parameter: str, section: str, key: str | None, values: list[Any], **more: Any) -> dict[str, Any]:
    """A row of a divergence whose distances are `values` in every measure, in ULP as whole numbers."""
    ulp = [round(one * 1e9) if isinstance(one, float) else one for one in values]
    return {
        "section": section,
        "parameter": parameter,
        "key": key,
        "optimizer": 0 if section == "state" else None,
        "part": 0,
        "numel": 64,
        "first": 11,
        "differs_at": len(values),
        "load": None,
        "steps": None,
        "rel_l2": values,
        "max_abs": values,
        "max_ulp": ulp,
        "differing": [64] * len(values),
        "not_measured": [],
    } | more


def divergence(names: tuple[str, ...], steps: list[int], full: int | None = None) -> dict[str, Any]:
    """A run in which all differs; of tensors after the first `full` only two steps are told."""
    tensors = []
    for place, name in enumerate(names):
        for other, (section, key) in enumerate(
            (("param", None), ("state", "exp_avg"), ("state", "exp_avg_sq"), ("grad", None))
        ):
            few = full is not None and len(tensors) >= full
            told = [steps[0], steps[-1]] if few else steps
            values = [1e-7 * (1 + place % 97) * (other + 1) * 1.5 ** (step - steps[0]) ** 0.5 for step in told]
            tensors.append(row(name, section, key, values, steps=told if few else None))
    left_out = (
        {"tensors": len(tensors) - full, "numbers": 1, "reason": "too many to tell"} if full is not None else None
    )
    return {"run": RUN, "step": 10, "steps": steps, "tensors": tensors, "left_out": left_out, "reason": None}


def stages(steps: list[int], **differing: list[int]) -> dict[str, Any]:
    """The stages of a run; each differs as it is said, all others agree, and there are no buffers and no EMA."""
    load = [("param", 26, 0), ("state", 52, 2), ("groups", 26, 2), ("hyper", 12, 0), ("grad", 26, 26), ("rng", 3, 0)]
    return {
        "run": RUN,
        "step": 10,
        "steps": steps,
        "shown": steps[0],
        "open": None,
        "raised_step": None,
        "load": [{"section": name, "compared": compared, "differing": apart} for name, compared, apart in load],
        "stages": [
            {
                "stage": name,
                "compared": 0 if name in ("buffers", "ema", "extra") else 26,
                "differing": differing.get(name),
            }
            for name in STAGES
        ],
    }


def gradients(names: tuple[str, ...], steps: list[int]) -> dict[str, Any]:
    """Gradient presence: the first parameter's is none, then zero; the last one is frozen; all others are there."""
    half = len(steps) // 2
    first = {
        "parameters": [names[0]],
        "left": "-" * half + "0" * (len(steps) - half),
        "right": None,
        "frozen": None,
        "contract": None,
    }
    last = {
        "parameters": [names[-1]],
        "left": "+" * len(steps),
        "right": "+" * half + "-" * (len(steps) - half),
        "frozen": "f" * len(steps),
        "contract": "hold",
    }
    rest = {"parameters": [*names[1:-1]], "left": "+" * len(steps), "right": None, "frozen": None, "contract": None}
    letters = {"-": "none", "0": "zero", "+": "nonzero", " ": "not recorded", "f": "frozen"}
    return {"run": RUN, "steps": steps, "every": 1, "letters": letters, "rows": [first, rest, last]}


def membership(names: tuple[str, ...]) -> dict[str, Any]:
    """Two groups whose first members have changed places."""
    half = len(names) // 2
    left, right = [*names[:half]], [*names[half:]]
    swapped = [right[0], *left[1:]], [left[0], *right[1:]]
    options = {"lr": 0.01, "weight_decay": 0.1}
    sides = [
        [{"group": place, "size": len(some), "members": some, "options": options} for place, some in enumerate(side)]
        for side in ((left, right), swapped)
    ]
    return {
        "run": RUN,
        "optimizer": 0,
        "class_name": "AdamW",
        "same_members": False,
        "same_order": False,
        "of": [0, 1],
        "left": sides[0],
        "right": sides[1],
    }
