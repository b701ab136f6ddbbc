"""Two traces compared the slow and plain way, row by row as Python objects: what the fast way must agree with."""

import json
from dataclasses import dataclass, field

from ckptcheck.comparison.groups import match_groups
from ckptcheck.state.stages import STAGES
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import STEP, Item

STRUCTURE = Item("structure", "groups")
NUMEROUS = ("param", "grad", "state", "buffer", "ema")
IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable")


@dataclass
class Slow:
    """What differs: (step, item, left digest, right digest); and what was counted."""

    differences: list[tuple] = field(default_factory=list)
    left_out: int = 0
    parameters: set[str] = field(default_factory=set)
    state: set[tuple] = field(default_factory=set)
    nbytes: int = 0


def slowly(left: Trace, right: Trace, whole_steps: int, kept_a_kind: int) -> Slow:
    told = Slow()
    differing = 0
    for step in sorted(set(left.steps) & set(right.steps)):
        found = _step(left, right, step, told)
        if differing >= whole_steps:
            for kind in NUMEROUS:
                beyond = [one for one in found if one[1].kind == kind][kept_a_kind:]
                told.left_out += len(beyond)
                found = [one for one in found if one not in beyond]
        differing += bool(found)
        told.differences += found
    return told


def _step(left: Trace, right: Trace, step: int, told: Slow) -> list[tuple]:
    ours, theirs = left.samples(step, STEP), right.samples(step, STEP)
    texts = [trace.text(samples[STRUCTURE].digest) if STRUCTURE in samples else None
             for trace, samples in ((left, ours), (right, theirs))]  # fmt: skip
    parsed = [[one["groups"] for one in json.loads(text or "[]")] for text in texts]
    members = {name for optimizers in parsed for groups in optimizers for group in groups for name in group}
    if texts[0] != texts[1]:
        theirs = _renamed(theirs, parsed)
        partners = [match_groups(*pair).same_members for pair in zip(*parsed, strict=False)]
        if len(parsed[0]) == len(parsed[1]) and all(partners):
            ours.pop(STRUCTURE, None)
            theirs.pop(STRUCTURE, None)
    found = []
    for item in {**ours, **theirs}:
        one, other = ours.get(item), theirs.get(item)
        if one is not None and other is not None:
            _count(told, item, one)
            if (one.digest, one.presence, one.spec) == (other.digest, other.presence, other.spec):
                continue
        alone = one is None or other is None
        unread = item.kind == "grad" and members and item.name not in members
        chosen = item.kind == "hyper" and item.key in IMPLEMENTATION
        if not ((item.kind == "rng" and alone) or unread or chosen):
            found.append((step, item, one and one.digest, other and other.digest))
    return sorted(found, key=lambda one: (STAGES.index(one[1].stage), one[1].part, one[1].kind != "structure", one[1]))


def _renamed(samples: dict, parsed: list) -> dict:
    renamed = {}
    for item, sample in samples.items():
        named = item
        if item.kind == "hyper" and item.optimizer < min(map(len, parsed)):
            pair = [side[item.optimizer] for side in parsed]
            partner = match_groups(*pair).left_of.get(item.group)
            named = item._replace(group=item.group + 1000 if partner is None else partner)
        renamed[named] = sample
    return renamed


def _count(told: Slow, item: Item, sample) -> None:
    if sample.spec is None:
        told.parameters |= {item.name} if item.kind == "param" else set()
        return
    told.nbytes += sample.spec.nbytes
    if item.kind == "param":
        told.parameters.add(item.name)
    elif item.kind == "state":
        told.state.add((item.optimizer, item.name, item.key))
