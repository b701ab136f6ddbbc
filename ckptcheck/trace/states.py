"""From a recorded moment to the noun that rules judge."""

import json
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from ckptcheck.state.digest import PLAIN_DIGEST, Digest
from ckptcheck.state.training_state import SECTIONS, Entry, Group, Optimizer, Parameter, TrainingState
from ckptcheck.trace.file import Trace
from ckptcheck.trace.items import LOAD, PRESENCE, SAVED, STEP, Item, Sample
from ckptcheck.trace.whole_steps import OF_BEGIN


def state_at(trace: Trace, step: int, moment: str) -> TrainingState:
    """The training state that a trace recorded at a moment of kind load, saved or after-save.

    Raises KeyError when the trace has no such moment.
    """
    if (step, moment) not in trace.moments:
        raise KeyError(f"{trace.path} has no moment {moment!r} at step {step}")
    return _state(trace, step, trace.samples(step, moment))


def _state(trace: Trace, step: int, samples: dict[Item, Sample]) -> TrainingState:
    entries = _Entries(samples, trace.header["digest"])
    structure = {item.name: trace.text(sample.digest) for item, sample in samples.items() if item.kind == "structure"}
    frozen = set(json.loads(structure.get("frozen") or "[]"))
    evaluating = json.loads(structure.get("eval") or "[]")
    return TrainingState(
        source=f"{trace.header.get('run', trace.path.name)}, step {step}",
        step=step,
        parameters=_parameters(entries, frozen, json.loads(structure.get("ties") or "{}")),
        buffers=entries.by_name("buffer"),
        optimizers=_optimizers(entries, json.loads(structure.get("groups") or "[]")),
        sections={kind: found for kind in SECTIONS if (found := entries.by_name(kind))},
        rng=entries.by_name("rng"),
        modes=dict.fromkeys(evaluating, False),
        flags=json.loads(structure.get("flags") or "{}"),
    )


class _Entries:
    """The samples of a moment as entries, by kind."""

    def __init__(self, samples: dict[Item, Sample], algorithm: str) -> None:
        self._algorithm = algorithm
        self.kinds: dict[str, list[tuple[Item, Sample]]] = {}
        for item, sample in samples.items():
            self.kinds.setdefault(item.kind, []).append((item, sample))

    def entry(self, sample: Sample) -> Entry:
        algorithm = PLAIN_DIGEST if sample.spec is None else self._algorithm
        digest = Digest(algorithm, sample.digest) if sample.digest is not None else None
        return Entry(sample.spec, digest, sample.norm, sample.value)

    def by_name(self, kind: str) -> dict[str, Entry]:
        return {item.name: self.entry(sample) for item, sample in self.kinds.get(kind, [])}


def _parameters(entries: _Entries, frozen: set[str], ties: dict[str, list[str]]) -> dict[str, Parameter]:
    gradients = {item.name: sample for item, sample in entries.kinds.get("grad", [])}
    parameters = {}
    for name, entry in entries.by_name("param").items():
        gradient = gradients.get(name)
        parameters[name] = Parameter(
            name=name,
            entry=entry,
            aliases=tuple(ties.get(name, ())),
            requires_grad=name not in frozen,
            presence=PRESENCE[gradient.presence] if gradient and gradient.presence is not None else None,
            grad=entries.entry(gradient) if gradient and gradient.digest is not None else None,
        )
    return parameters


def _optimizers(entries: _Entries, described: list[dict[str, Any]]) -> tuple[Optimizer, ...]:
    state: dict[int, dict[str, dict[str, Entry]]] = {}
    for item, sample in entries.kinds.get("state", []):
        state.setdefault(item.optimizer, {}).setdefault(item.name, {})[item.key] = entries.entry(sample)
    values: dict[tuple[int, int], dict[str, Entry]] = {}
    for item, sample in entries.kinds.get("hyper", []):
        values.setdefault((item.optimizer, item.group), {})[item.key] = entries.entry(sample)
    return tuple(
        Optimizer(
            class_name=one["class"],
            groups=tuple(
                Group(tuple(members), values.get((place, group), {})) for group, members in enumerate(one["groups"])
            ),
            state=state.get(place, {}),
        )
        for place, one in enumerate(described)
    )


def state_after_step(trace: Trace, step: int) -> TrainingState | None:
    """The training state after a step, from the records of that step and the next; None where they are not there.

    Generators and hyperparameters are those with which the next step begins, ties, modes and flags those of the run's
    begin. In a script, who is in which group and what is not trained are those of the next step too: its load is seen
    just before that. There are no gradients: an update has used them. An optimizer that does not update in the next
    step has no hyperparameters there; see `without_silence`.
    """
    begin = next((place for place, moment in trace.moments if moment == LOAD), None)
    if (step, STEP) not in trace.moments or (step + 1, STEP) not in trace.moments or begin is None:
        return None
    after, following = trace.samples(step, STEP), trace.samples(step + 1, STEP)
    if all(item.kind in OF_BEGIN for item in after):
        return None  # with --every N
    bound = following if trace.header.get("driver") == "script" else after
    parts = (
        (after, frozenset({"param", "buffer", "state", *SECTIONS})),
        (following, frozenset({"rng", "hyper"})),
        (trace.samples(begin, LOAD), frozenset({"structure"})),
        (bound, frozenset({"structure"})),
    )
    samples = {
        item: one for found, kinds in parts for item, one in found.items() if item.kind in kinds and not item.part
    }
    return _state(trace, step, samples)


def without_silence(after: TrainingState, live: TrainingState) -> TrainingState:
    """A state after a step with what steps do not record as in another one, so that it is not held against that.

    These are train and eval modes, gradients, and hyperparameters of optimizers that the next step did not update.
    """
    parameters = {name: replace(one, presence=None, grad=None) for name, one in after.parameters.items()}
    optimizers = tuple(_filled(*pair) for pair in zip_longest(after.optimizers, live.optimizers) if pair[0] is not None)
    return replace(after, parameters=parameters, optimizers=optimizers, modes=live.modes)


def _filled(one: Optimizer, live: Optimizer | None) -> Optimizer:
    if live is None or any(group.hyperparameters for group in one.groups):
        return one
    values = {frozenset(group.members): group.hyperparameters for group in live.groups}
    return replace(
        one,
        groups=tuple(replace(group, hyperparameters=values.get(frozenset(group.members), {})) for group in one.groups),
    )


def replaced_by_load(trace: Trace, step: int) -> frozenset[str]:
    """The sections whose objects the load put others in place of."""
    text = trace.text(trace.digest(step, LOAD, Item("structure", "replaced")))
    return frozenset(json.loads(text or "[]"))


def shared_by_load(saved: Trace, right: Trace, step: int) -> dict[str, str]:
    """Entries of the average in a live weight's memory after a load, not when it was saved: paths to parameters."""
    item = Item("structure", "shared")
    before = json.loads(saved.text(saved.digest(step, SAVED, item)) or "{}")
    after: dict[str, str] = json.loads(right.text(right.digest(step, LOAD, item)) or "{}")
    return {path: name for path, name in after.items() if path not in before}
