"""Archives of stable-baselines3: a zip of JSON, and of one torch file each for policy, optimizers and variables."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ckptcheck.conventions.files import files_of, matching, stem
from ckptcheck.conventions.groups import explain_optimizer, is_optimizer, member_count
from ckptcheck.conventions.parts import Parts, checkpoint, model_of, names_of_each
from ckptcheck.conventions.progress import number_of
from ckptcheck.conventions.weights import Weights
from ckptcheck.state.checkpoint import Checkpoint
from ckptcheck.state.raw import Raw, RawTree

DATA: Final = "data"
POLICY: Final = "policy.pth"
VARIABLES: Final = "pytorch_variables.pth"
_OPTIMIZER: Final = r"(?P<owner>.+)[._]optimizer\.pth"
_ENTROPY: Final = "ent_coef"
_TARGET: Final = "_target"
_REPLAY: Final = "replay_buffer_class"
"""Among the data of algorithms that learn from what they kept."""
COUNTERS: Final = ("num_timesteps", "_n_updates", "_episode_num", "_total_timesteps", "_num_timesteps_at_start")


class StableBaselines:
    """Told by its JSON and its policy."""

    name = "stable-baselines3"

    def claims(self, raw: RawTree) -> bool:
        """Whether the policy and the algorithm's data are there."""
        files = files_of(raw)
        return raw.container == "zip" and all(isinstance(files.get(path), Mapping) for path in (POLICY, DATA))

    def explain(self, raw: RawTree, names: Sequence[str] | None) -> Checkpoint:
        """Each optimizer numbers the parameters of its own part of the policy: "actor.optimizer" those of "actor."."""
        files = files_of(raw)
        policy, data = files[POLICY], files[DATA]
        variables = files.get(VARIABLES)
        held = dict(variables) if isinstance(variables, Mapping) and not set(variables) & set(policy) else {}
        parts = Parts(model={**policy, **held}, models={"policy": policy})
        optimizers = [(match, value) for match, value in matching(raw, _OPTIMIZER) if is_optimizer(value)]
        parts.optimizers = {stem(match[0]): value for match, value in optimizers}
        parts.progress = {key: data[key] for key in COUNTERS if key in data}
        parts.step = number_of(data.get("num_timesteps"))
        parts.recorded_step = "" if parts.step is None else f"num_timesteps {parts.step} ({DATA})"
        used = {POLICY, DATA, *(match[0] for match, _ in optimizers), *([VARIABLES] if held else [])}
        parts.extra = {path: value for path, value in files.items() if path not in used}
        parts.extra[DATA] = {key: value for key, value in data.items() if key not in COUNTERS}
        model = model_of(parts)
        given = names_of_each(parts, names)
        done = []
        for match, value in optimizers:
            key = stem(match[0])
            own = _owned(model, match["owner"], set(held), member_count(value))
            done.append(explain_optimizer(value, own, given[key]))
            parts.extra.update({f"{key}.{path}": one for path, one in done[-1].rest.items()})
            parts.notes.extend(f"{key} {said}" for said in done[-1].notes)
        parts.notes += _notes(policy, data)
        ready = tuple(one.optimizer for one in done), tuple(one.naming for one in done)
        return checkpoint(raw, self.name, parts, names, optimizers=ready, model=model)


def _owned(model: Weights, owner: str, variables: set[str], count: int) -> Weights:
    """The part of the model that one optimizer trains, `count` parameters of it."""
    if owner == _ENTROPY:
        names = [name for name in model.shapes if name in variables]
    else:
        names = [name for name in model.shapes if name not in variables]
        if owner != "policy":
            names = [name for name in names if name.startswith(f"{owner}.")]
        elif count < len(names):  # some versions list the target networks, too, and never train them
            names = [name for name in names if not _is_target(name)]
    return replace(model, shapes={name: model.shapes[name] for name in names})


def _is_target(name: str) -> bool:
    """Whether a parameter is of a copy that follows a network that is trained."""
    return name.partition(".")[0].endswith(_TARGET)


def _notes(policy: Mapping[Any, Raw], data: Mapping[Any, Raw]) -> list[str]:
    """What is not in such an archive, or is not trained."""
    targets = dict.fromkeys(str(name).partition(".")[0] for name in policy if _is_target(str(name)))
    notes = [f"{name} follows a network that is trained: no optimizer has it" for name in targets]
    if _REPLAY in data:
        notes.append(
            "the replay buffer is not in the archive: save_replay_buffer writes it, and load starts without one"
        )
    return notes
