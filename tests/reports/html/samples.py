"""Results made by hand that have everything a page can show, and as much of it as is asked for."""

from typing import Any

from ckptcheck.finding import Accepted, Cause, Compared, Finding, NotJudged, Place, Result, Severity, Verdict
from tests.reports.html.made import HOSTILE, NAMES, RUN, divergence, gradients, membership, stages


def finding(code: str, severity: Severity, message: str, place: Place, **more: Any) -> Finding:
    """A finding whose name says its code."""
    return Finding(code, f"rule-{code.lower()}", severity, message, place, **more)


def verified(names: tuple[str, ...] = NAMES, steps: list[int] | None = None, full: int | None = None) -> Result:
    """A verify that fails at the load, with every picture."""
    steps = steps if steps is not None else [*range(11, 23)]
    place = Place(parameter=names[0], key="exp_avg", optimizer=0, group=0, step=10, stage="load")
    many = [1] + [26] * (len(steps) - 1)
    magnitude = {
        "run": RUN,
        "step": 10,
        "stage": "load",
        "section": "state",
        "parameter": names[0],
        "key": "exp_avg",
        "optimizer": 0,
        "kind": "changed",
        "left": None,
        "right": None,
        "differing": 64,
        "numel": 64,
        "max_abs": 0.25,
        "rel_l2": 0.5,
        "max_ulp": 8,
    }
    findings = (
        finding(
            "CK301",
            Severity.ERROR,
            f"2 parameters changed group: {names[0]}, {names[1]}",
            place,
            evidence={"groups": {names[0]: [0, 1], names[1]: [1, 0]}},
            fix="sort them by the same rule",
        ),
        finding(
            "CK302",
            Severity.ERROR,
            "state is bound to other parameters",
            place,
            evidence={"permutation": {names[0]: names[1], names[1]: names[0]}},
            fix="keep the order",
        ),
        finding(
            "CK501",
            Severity.WARNING,
            f"{names[2]} holds NaN",
            Place(parameter=names[2], step=12, stage="param"),
            accepted=Accepted("a warm-up artefact", "2027-01-31", "pyproject.toml"),
        ),
        finding("CK207", Severity.INFO, "the data position is not saved", Place(), evidence={"counters": []}),
        finding(
            "CK613",
            Severity.WARNING,
            "gradients were left over",
            Place(step=10, stage="load"),
            evidence={"without_effect": True},
        ),
    )
    crossed = {
        "situations": [
            {"name": "a resume in a fresh process", "covered": "yes", "steps": [10], "why": "", "to_cover": ""},
            {
                "name": "a second save",
                "covered": "no",
                "steps": [],
                "why": "one step only",
                "to_cover": "--resume-at auto",
            },
        ]
    }
    return Result(
        command="verify",
        verdict=Verdict.FAIL,
        compared=Compared(len(steps), len(names), 3 * len(names), 123_456),
        first_divergence=place,
        cause=Cause("CK301", "certain"),
        findings=findings,
        not_judged=(NotJudged("CK401", "no freeze contract was given"),),
        environment={"torch": "2.13.0", "flags": {"num_threads": 1}},
        parts={
            "target": "train.py:build",
            "trajectory": [magnitude],
            "magnitudes": [magnitude],
            "divergence": [divergence(names, steps, full)],
            "stages": [stages(steps, state=many, param=many, grad=[0, *many[1:]])],
            "gradients": [gradients(names, [*range(1, steps[-1] + 1)])],
            "membership": [membership(names)],
            "crossed": crossed,
            "runs": [{"name": "reference", "status": "ended", "seconds": 2.5, "training_s": 0.1, "recording_s": 0.01}],
        },
    )


def many_names(tensors: int) -> tuple[str, ...]:
    """Names of a deep model; it has four tensors a name."""
    parts = ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.up", "mlp.down", "norm1", "norm2")
    return tuple(f"model.layers.{place // 8}.{parts[place % 8]}.weight" for place in range(tensors // 4))


def large(tensors: int = 20_000, steps: int = 400) -> Result:
    """A verify of very many tensors and steps, told as far as a result tells it: 200,000 cells."""
    every = (200_000 - 2 * tensors) // (steps - 2) if steps > 2 else None
    return verified(many_names(tensors), [*range(11, 11 + steps)], every)


def compared_checkpoints() -> Result:
    """A diff with distances in ULP and rows of several kinds."""
    rows = [
        {
            "section": "model",
            "parameter": name,
            "key": None,
            "kind": "changed",
            "differing": 3,
            "numel": 64,
            "max_abs": 0.5 / (place + 1),
            "rel_l2": 0.25 / (place + 1),
            "max_ulp": 9 + place,
            "left": None,
            "right": None,
            "left_dtype": "float32",
            "left_shape": [8, 8],
        }
        for place, name in enumerate(NAMES)
    ]
    rows.append(
        {"section": "scheduler", "parameter": None, "key": "last_epoch", "kind": "changed", "left": 5, "right": 8}
    )
    sections = [
        {
            "section": "model",
            "tensors": 26,
            "values": 0,
            "bytes": 6656,
            "differing": 26,
            "added": 0,
            "removed": 0,
            "tolerated": 0,
        }
    ]
    return Result(
        command="diff",
        verdict=Verdict.FAIL,
        compared=Compared(parameters=26, bytes=6656),
        parts={
            "left": {"path": "a.pt"},
            "right": {"path": "b.pt"},
            "sections": sections,
            "differences": rows,
            "ulp": [{"section": "model", "key": None, "dtype": "float32", "tensors": 26, "counts": [1, 4, 0, 20, 53]}],
        },
    )


def hostile() -> Result:
    """The same with names, messages and values that would do harm where they are not escaped."""
    harmful = {
        name: HOSTILE[place % len(HOSTILE)] + (f".{place}" if place >= len(HOSTILE) else "")
        for place, name in enumerate(NAMES)
    }
    made = verified(tuple(harmful[name] for name in NAMES))
    worst = tuple(
        finding(
            "CK601",
            Severity.ERROR,
            one,
            Place(path=one, parameter=one, key=one),
            fix=one,
            evidence={one: one, "list": [one]},
            accepted=Accepted(one, None, one),
        )
        for one in HOSTILE
    )
    return Result(
        made.command,
        made.verdict,
        made.compared,
        made.first_divergence,
        made.cause,
        made.findings + worst,
        (NotJudged("CK401", HOSTILE[0]),),
        {HOSTILE[0]: HOSTILE[2]},
        {**made.parts, "target": HOSTILE[0], HOSTILE[1]: {HOSTILE[2]: [HOSTILE[5]]}},
    )
