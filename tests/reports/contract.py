"""Schema 1 of a JSON result as hand-written checks: `breaches` returns what a document has wrong, in words."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from ckptcheck.state.stages import STAGES
from tests.reports.keeping import breaks_schema

Check = Callable[[Any], bool]

FRAME = ("schema", "tool", "command", "verdict", "compared", "first_divergence", "cause", "findings", "not_judged",
         "environment")  # fmt: skip
COMMANDS = ("verify", "save", "resume", "compare", "demo", "diff", "check", "inspect")
VERDICTS = ("pass", "fail", "inconclusive", "error")
SEVERITIES = ("error", "warning", "info")


def text(value: Any) -> bool:
    return isinstance(value, str)


def said(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def number(value: Any) -> bool:
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or value in ("nan", "inf", "-inf")


def scalar(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str))


def index(value: Any) -> bool:
    return isinstance(value, list) and all(map(count, value))


def code(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 5 and value.startswith("CK") and value[2:].isdecimal()


def stage(value: Any) -> bool:
    return value in STAGES


def or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


COMPARED = {"steps": count, "parameters": count, "state_tensors": count, "bytes": count}
WHERE = {"path": text, "parameter": text, "key": text, "optimizer": count, "group": count, "step": count,
         "stage": stage, "rank": count}  # fmt: skip
FIRST = {name: or_null(check) for name, check in WHERE.items() if name != "path"}
CAUSE = {"code": code, "confidence": ("certain", "likely", "unknown").__contains__}
FINDING = {
    "code": code,
    "name": said,
    "severity": SEVERITIES.__contains__,
    "message": said,
    "where": lambda value: isinstance(value, dict),
    "evidence": lambda value: isinstance(value, dict),
    "fix": text,
}
NUMBERS = {name: or_null(check) for name, check in {
    "differing": count, "numel": count, "first_at": index, "max_abs": number, "max_abs_at": index, "rel_l2": number,
    "max_ulp": count, "median_ulp": count, "sign_flips": count, "nan": count, "inf": count,
}.items()}  # fmt: skip
PLACE = {"run": said, "step": count, "stage": stage, "section": said, "parameter": or_null(text), "key": or_null(text),
         "optimizer": or_null(count), "kind": {"added", "removed", "changed"}.__contains__,
         "left": or_null(scalar), "right": or_null(scalar),
         "left_norm": or_null(number), "right_norm": or_null(number)}  # fmt: skip
FAR = {"max_abs": or_null(number), "rel_l2": or_null(number), "max_ulp": or_null(count), "differing": or_null(count)}
COLUMN = {
    "section": {"param", "state", "grad", "buffer"}.__contains__, "parameter": or_null(text), "key": or_null(text),
    "optimizer": or_null(count), "part": count, "numel": count, "first": or_null(count), "differs_at": count,
    "load": or_null(lambda value: all(check(value[name]) for name, check in FAR.items())),
    "steps": or_null(index),
    "not_measured": lambda value: all(said(one["reason"]) and index(one["steps"]) for one in value),
    **{name: (lambda value, check=check: all(map(check, value))) for name, check in FAR.items()},
}  # fmt: skip
SECTIONS = ("model", "optimizer", "scheduler", "scaler", "ema", "rng", "data", "progress", "other")
SECTION = {"section": SECTIONS.__contains__, "tensors": count, "values": count, "bytes": count}
KINDS = ("changed", "added", "removed", "moved", "renamed", "dtype", "shape")
DIFFERENCE = NUMBERS | {
    "section": SECTIONS.__contains__, "parameter": or_null(text), "key": or_null(text), "kind": KINDS.__contains__,
    "optimizer": or_null(count), "signed_zeros": or_null(count), "nan_payloads": or_null(count),
    "rounded_through": or_null(said), "group": or_null(count), "beyond": or_null(count), "other": or_null(said),
    "left": or_null(scalar), "right": or_null(scalar), "left_dtype": or_null(said), "right_dtype": or_null(said),
    "left_shape": or_null(index), "right_shape": or_null(index), "label": or_null(said),
}  # fmt: skip
LAYOUT = {"container": said, "convention": or_null(said)}
SIDE = {"path": said, "layout": lambda value: not list(_record(value, LAYOUT, "")), "bytes": count,
        "step": or_null(count), "section": or_null(said)}  # fmt: skip
TENSOR = {
    "section": SECTIONS.__contains__, "name": or_null(text), "key": or_null(text), "dtype": said, "shape": index,
    "bytes": count, "device": or_null(said), "requires_grad": or_null(lambda value: isinstance(value, bool)),
    "optimizer": or_null(count), "group": or_null(count), "tied": lambda value: isinstance(value, list),
    "storage": lambda value: value is None or set(value) == {"file", "key", "offset"}, "value": or_null(scalar),
}  # fmt: skip
VALUE = {"section": SECTIONS.__contains__, "name": or_null(text), "key": or_null(text), "value": or_null(scalar),
         "optimizer": or_null(count), "group": or_null(count), "digest": or_null(said)}  # fmt: skip
GROUP = {"optimizer": count, "group": count, "parameters": lambda value: isinstance(value, list),
         "hyperparameters": lambda value: isinstance(value, dict)}  # fmt: skip
OPTIMIZER_PAIR = {"optimizer": count, "left": or_null(count), "right": or_null(count), "left_label": or_null(said),
                  "right_label": or_null(said),
                  "paired_by": ("name", "position", "none", None).__contains__}  # fmt: skip
REGROUPED = {"parameter": said, "optimizer": count, "left_group": or_null(count), "right_group": or_null(count)}
NAMING = {"source": said, "certain": lambda value: isinstance(value, bool), "reason": said}
OPTIMIZER = {
    "optimizer": count, "label": or_null(said), "class": or_null(said),
    "classes": lambda value: all(map(said, value)), "class_certain": lambda value: isinstance(value, bool),
    "groups": count, "parameters": count, "with_state": count, "orphans": lambda value: isinstance(value, list),
    "state_keys": lambda value: all(map(count, value.values())), "steps": lambda value: isinstance(value, list),
    "naming": or_null(lambda value: not list(_record(value, NAMING, ""))),
}  # fmt: skip
FILE = {"path": text, "bytes": count, "container": said, "checksums": ("on", "off", "in part").__contains__}
GLOBAL = {"file": text, "name": said, "danger": ("unknown", "runs-code").__contains__, "count": count}
TABLES = {
    "diff": {
        "sections": SECTION | dict.fromkeys(("differing", "added", "removed", "tolerated"), count),
        "differences": DIFFERENCE,
        "optimizers": OPTIMIZER_PAIR,
        "groups": REGROUPED,
    },
    "inspect": {
        "sections": SECTION | {"dtypes": lambda value: isinstance(value, dict)},
        "tensors": TENSOR,
        "values": VALUE,
        "groups": GROUP,
        "globals": GLOBAL,
        "storage_bloat": {"file": text, "key": said, "bytes": count, "used_bytes": count},
    },
    "check": {"files": FILE, "globals": GLOBAL, "optimizers": OPTIMIZER},
}
"""The lists that a command about checkpoints always adds, and what stands in each of their rows."""
PURPOSE = {
    "asked": ("auto", "resume", "release").__contains__,
    "judged_for": or_null(("resume", "release").__contains__),
    "reason": said,
}
MEMORY = dict.fromkeys(("weights_bytes", "optimizer_bytes", "fresh_bytes", "loaded_bytes", "peak_bytes", "extra_bytes"),
                       count) | {
    "duplicates": lambda value: all(set(one) == {"what", "bytes"} for one in value),
    "devices": lambda value: all(count(size) for size in value.values()),
}  # fmt: skip
TARGET = {
    "target": said, "how": or_null(said), "loaded": lambda value: isinstance(value, bool), "raised": or_null(said),
    "not_loaded": or_null(said), "parameters": count, "parameters_not_loaded": lambda value: all(map(said, value)),
    "optimizers": count, "pairs": lambda value: not [one for row in value for one in _record(row, LOADED_INTO, "")],
    "left_out": lambda value: all(map(said, value)), "judged": lambda value: all(map(code, value)),
}  # fmt: skip
LOADED_INTO = {"optimizer": count, "class": or_null(said), "file": or_null(count),
               "named": lambda value: isinstance(value, bool)}  # fmt: skip
MEMBER = {
    "path": said, "step": or_null(count), "counters": lambda value: set(value) <= {"updates", "schedule"}
    and all(map(number, value.values())), "parameters": or_null(count), "bytes": or_null(count),
    "checked": lambda value: isinstance(value, bool), "damage": lambda value: all(map(said, value)),
    "not_read": or_null(said),
}  # fmt: skip
ASKED = {"select": lambda value: all(map(said, value)), "ignore": lambda value: all(map(said, value))}
RECORDS = {"diff": {"left": SIDE, "right": SIDE}, "inspect": {"layout": LAYOUT}, "check": {"asked": ASKED}}
OF_WHAT_CAN_BE_READ = {"check": {"purpose": PURPOSE, "memory": MEMORY}}
"""Records that are null where the checkpoint could not be read."""
RUN = {"name": said, "status": said, "seconds": number, "training_s": number, "recording_s": number}


def breaches(document: Any) -> list[str]:
    """Return everything in which a document is not a result of schema 1."""
    return list(_frame(document)) or [
        *_judgement(document),
        *_parts(document),
        *_tables(document),
        *_plain(document, "result"),
        *breaks_schema(document),
    ]


def _frame(document: Any) -> Iterator[str]:
    if tuple(document)[: len(FRAME)] != FRAME:
        yield f"the frame is {tuple(document)[: len(FRAME)]}"
        return
    if document["schema"] != 1 or set(document["tool"]) != {"name", "version"}:
        yield f"schema {document['schema']} of {document['tool']}"
    if document["verdict"] not in VERDICTS or document["command"] not in (*COMMANDS, ""):
        yield f"verdict {document['verdict']} of {document['command']}"
    if (document["verdict"] == "error") != ("error" in document):
        yield "an error has its line, and only an error"
    yield from _record(document["compared"], COMPARED, "compared")


def _judgement(document: Any) -> Iterator[str]:
    if document["first_divergence"] is not None:
        yield from _record(document["first_divergence"], FIRST, "first_divergence")
    if document["cause"] is not None:
        yield from _record(document["cause"], CAUSE, "cause")
        if document["cause"]["code"] not in {one["code"] for one in document["findings"]}:
            yield "no finding stands for the cause"
    for place, finding in enumerate(document["findings"]):
        yield from _record(finding, FINDING, f"finding {place}")
        applying = {key: WHERE.get(key, _never) for key in finding["where"]}
        yield from _record(finding["where"], applying, f"where {place}")
    for place, one in enumerate(document["not_judged"]):
        yield from _record(one, {"code": code, "reason": said}, f"not_judged {place}")
    if (
        document["verdict"] == "pass"
        and document["command"] in ("verify", "compare")
        and not all(document["compared"][key] for key in ("steps", "parameters", "bytes"))
    ):
        yield "a pass that compared nothing"


def _parts(document: Any) -> Iterator[str]:
    for part in ("trajectory", "magnitudes"):
        for place, row in enumerate(document.get(part, [])):
            wanted = PLACE | NUMBERS | ({"reason": said} if "reason" in row else {})
            yield from _record(row, wanted, f"{part} {place}")
            if row.get("max_abs") is None and "reason" not in row:
                yield f"{part} {place} has no magnitude and no reason"
    for run in document.get("divergence", []):
        for place, row in enumerate(run["tensors"]):
            yield from _record(row, COLUMN, f"divergence of {run['run']}, tensor {place}")
            steps = run["steps"] if row["steps"] is None else row["steps"]
            if {len(row[name]) for name in ("max_abs", "rel_l2", "max_ulp", "differing")} != {len(steps)}:
                yield f"divergence of {run['run']}, tensor {place} has not a number a step"
            told = {step for one in row["not_measured"] for step in one["steps"]}
            if told != {step for step, differing in zip(steps, row["differing"], strict=False) if differing is None}:
                yield f"divergence of {run['run']}, tensor {place} has no number and no reason"
    for place, run in enumerate(document.get("runs", [])):
        yield from _record(run, RUN, f"run {place}")


def _tables(document: Any) -> Iterator[str]:
    if document["verdict"] == "error":
        return
    for name, wanted in TABLES.get(document["command"], {}).items():
        if not isinstance(document.get(name), list):
            yield f"{name} is {document.get(name)!r}"
            continue
        for place, row in enumerate(document[name]):
            yield from _record(row, wanted, f"{name} {place}")
    for name, wanted in RECORDS.get(document["command"], {}).items():
        yield from _record(document.get(name), wanted, name)
    for name, wanted in OF_WHAT_CAN_BE_READ.get(document["command"], {}).items():
        yield from _record(document[name], wanted, name) if document.get(name) is not None else ()
    if document["command"] == "check":
        yield from _asked(document)
    if document["verdict"] == "pass" and document["command"] == "diff":
        yield from _same(document)


def _asked(document: Any) -> Iterator[str]:
    """What is there only where a target or a run's folder was named."""
    if "target" in document:
        yield from _record(document["target"], TARGET, "target")
    if "series" not in document:
        return
    for place, row in enumerate(document["series"]):
        yield from _record(row, MEMBER, f"series {place}")
    if not count(document.get("older_not_read")):
        yield f"older_not_read is {document.get('older_not_read')!r}"
    if sum(row.get("checked") is True for row in document["series"]) > 1:
        yield "more than one checkpoint of a run is the one that is checked"


def _same(document: Any) -> Iterator[str]:
    if not any(row["tensors"] + row["values"] for row in document["sections"]):
        yield "a pass that compared nothing"
    if document["gate"] == "content" and (document["differences"] or document["groups"]):
        yield "a pass in which something differs"


def _record(value: Any, wanted: dict[str, Check], where: str) -> Iterator[str]:
    if not isinstance(value, dict) or set(value) != set(wanted):
        yield f"{where}: keys {sorted(value) if isinstance(value, dict) else value} instead of {sorted(wanted)}"
        return
    yield from (f"{where}: {key} is {value[key]!r}" for key, check in wanted.items() if not check(value[key]))


def _plain(value: Any, where: str) -> Iterator[str]:
    """Look for numbers that are not finite: `json.loads` takes NaN and Infinity, other readers do not."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _plain(item, f"{where}.{key}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _plain(item, f"{where}[{place}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{where} is {value}"


def _never(value: Any) -> bool:
    return False
