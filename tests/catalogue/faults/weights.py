"""The weights: not loaded, overwritten, altered on the way, bound to another place."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor, nn

import ckptcheck
from tests.catalogue.fault import Expected, Fault
from tests.catalogue.making import make_model
from tests.catalogue.training import Training

FAMILY: Final = "weights"
WITHOUT_FOLLOWERS: Final[dict[str, object]] = {"schedule": "none", "ema": False}
"""For modules that are added after a schedule and an average were built, which know nothing of them."""
MIDDLE: Final = ("middle.weight", "middle.bias")
"""A layer that every model has, 8 x 8; its bias only some."""


def _trained(training: Training) -> tuple[str, ...]:
    return tuple(name for name, one in training.model.named_parameters() if one.requires_grad)


def _after_load(change: Callable[[Training], None]) -> Callable[[Training], None]:
    """Plant a change that the load makes to the weights, before it restores anything else."""

    def inject(training: Training) -> None:
        restore = training.restore_model

        def restore_model(state: Any) -> None:
            restore(state)
            with torch.no_grad():
                change(training)

        training.restore_model = restore_model  # type: ignore[method-assign]

    return inject


def _middle(training: Training) -> nn.Linear:
    layer = training.model.get_submodule("middle")
    assert isinstance(layer, nn.Linear)
    return layer


# Not loaded


def _renamed_in_the_file(training: Training) -> None:
    training.before_save.append(lambda saved: saved.update(
        model={name.replace("middle.", "body.middle."): one for name, one in saved["model"].items()}
    ))  # fmt: skip
    training.restore_model = lambda state: training.model.load_state_dict(state, strict=False)  # type: ignore


def _initial_again(training: Training) -> None:
    pretrained = copy.deepcopy(training.model.state_dict())
    training.after_restore.append(lambda: training.model.load_state_dict(pretrained))


def _into_a_copy(training: Training) -> None:
    def restore_model(state: Any) -> None:
        wrapped = copy.deepcopy(training.model)
        wrapped.load_state_dict(state)

    training.restore_model = restore_model  # type: ignore[method-assign]


def _fits_transposed(one: Tensor) -> bool:
    return one.ndim > 1 and one.shape[0] == one.shape[1]


def _shape_filter(training: Training) -> None:
    def restore_model(state: Any) -> None:
        own = dict(training.model.named_parameters())
        fitting = {name: one for name, one in state.items() if name not in own or _fits_transposed(own[name])}
        training.model.load_state_dict(fitting, strict=False)

    training.restore_model = restore_model  # type: ignore[method-assign]


def _filtered_out(training: Training) -> tuple[str, ...]:
    return tuple(
        name for name, one in training.model.named_parameters() if one.requires_grad and not _fits_transposed(one)
    )  # fmt: skip


class Adapter(nn.Module):
    """A low-rank addition to what goes into the head."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Linear(8, 2, bias=False)
        self.up = nn.Linear(2, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 8) to (batch, 8)."""
        return self.up(self.down(x))


def _with_adapter(training: Training, name: str = "adapter") -> Adapter:
    adapter = Adapter()
    training.model.add_module(name, adapter)
    training.model.get_submodule("head").register_forward_pre_hook(
        lambda module, inputs: (inputs[0] + adapter(inputs[0]).to(inputs[0].dtype),)
    )
    training.optimizer.add_param_group(
        {"params": [(f"{name}.{each}", one) for each, one in adapter.named_parameters()], "lr": 0.01}
    )
    return adapter


def _adapter_drawn_anew(training: Training) -> None:
    adapter = _with_adapter(training)
    restore = training.restore_model

    def restore_model(state: Any) -> None:
        restore(state)
        adapter.down.reset_parameters()
        adapter.up.reset_parameters()

    training.restore_model = restore_model  # type: ignore[method-assign]


def _second_adapter(training: Training) -> None:
    def adapt() -> None:
        generators = torch.get_rng_state()
        _with_adapter(training, "adapter_2")
        torch.set_rng_state(generators)

    _with_adapter(training)
    training.after_restore.append(adapt)


def _teacher(training: Training) -> None:
    """The weights of two steps ago, kept in a second module, pull on the loss; the file does not hold them."""
    teacher = make_model(training.spec)
    for one in teacher.parameters():
        one.requires_grad_(False)
    teacher.load_state_dict(training.model.state_dict())
    made, plain = training.run, training.loss

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        mine, its = training.model.get_parameter("middle.weight"), teacher.get_parameter("middle.weight")
        return plain(features, labels) + 0.1 * (mine - its).square().sum()

    def renew(s: int) -> None:
        if s % 2 == 0:
            teacher.load_state_dict(training.model.state_dict())

    def run() -> ckptcheck.Run:
        return replace(made(), model={"model": training.model, "teacher": teacher})

    training.run, training.loss = run, loss  # type: ignore[method-assign]
    training.after_step.append(renew)


# Loaded, and others than were saved


def _of_the_best_step(training: Training) -> None:
    best: dict[str, Tensor] = {}
    training.after_step.append(lambda s: best.update(copy.deepcopy(training.model.state_dict())) if s == 2 else None)
    training.before_save.append(lambda saved: saved.update(model=best))


def _last_bit(training: Training) -> None:
    weight = _middle(training).weight
    weight.view(torch.int32)[3, 4] ^= 1


def _through_bf16(training: Training) -> None:
    training.before_save.append(lambda saved: saved.update(
        model={name: one.bfloat16() if one.is_floating_point() else one for name, one in saved["model"].items()}
    ))  # fmt: skip


def _exchanged(training: Training) -> None:
    pair = [training.model.get_parameter(f"{name}.weight") for name in ("middle", "second")]
    kept = pair[0].clone()
    pair[0].copy_(pair[1])
    pair[1].copy_(kept)


def _half_of_the_rows(training: Training) -> None:
    fresh = _middle(training).weight.detach().clone()

    def change(training: Training) -> None:
        _middle(training).weight[4:] = fresh[4:]

    _after_load(change)(training)


def _untied(training: Training) -> None:
    head = training.model.get_submodule("head")
    assert isinstance(head, nn.Linear)
    training.after_restore.append(lambda: setattr(head, "weight", nn.Parameter(head.weight.detach().clone())))


def _tied(training: Training) -> None:
    second = training.model.get_submodule("second")
    training.after_restore.append(lambda: setattr(second, "weight", _middle(training).weight))


def _at_middle(*causes: str, says: tuple[str, ...] = ()) -> Callable[[Training], Expected]:
    return lambda training: Expected(causes, parameters=("middle.weight",), says=says)


FAULTS: Final = (
    Fault("module-renamed-strict-false", "The file has a module under its old name, and the load is not strict.",
          FAMILY, _renamed_in_the_file,
          lambda training: Expected(("CK309",), parameters=MIDDLE, says=("were not loaded",)),
          reports=("not_loaded",)),
    Fault("pretrained-loaded-again", "The argument that names the pretrained weights loads them after the checkpoint.",
          FAMILY, _initial_again, lambda training: Expected(("CK309",), parameters=_trained(training)),
          reports=("overwritten",)),
    Fault("loaded-into-a-copy", "The load fills a wrapped copy of the model; the loop holds the old one.",
          FAMILY, _into_a_copy, lambda training: Expected(("CK309",), parameters=_trained(training)),
          reports=("not_loaded",)),
    Fault("filtered-by-shape", "An own load_state_dict keeps what has the wanted shape, which is not the right one.",
          FAMILY, _shape_filter, lambda training: Expected(("CK309",), parameters=_filtered_out(training)),
          reports=("not_loaded",)),
    Fault("adapter-drawn-anew", "The adapter is wrapped a second time, with new random weights.",
          FAMILY, _adapter_drawn_anew,
          lambda training: Expected(("CK601",), parameters=("adapter.down.weight", "adapter.up.weight")),
          reports=("overwritten",), specs=WITHOUT_FOLLOWERS),
    Fault("second-adapter-added", "The load adds another adapter beside the one that it restores.",
          FAMILY, _second_adapter,
          lambda training: Expected(
              ("CK301", "CK601"), parameters=("adapter_2.down.weight", "adapter_2.up.weight"), says=("adapter_2",)),
          reports=("not_loaded",), specs=WITHOUT_FOLLOWERS),
    Fault("teacher-not-saved", "A target network is a module of its own, which no checkpoint holds.",
          FAMILY, _teacher,
          lambda training: Expected(
              ("CK309",), parameters=tuple(f"teacher.{name}" for name, _ in training.model.named_parameters())),
          reports=("not_loaded",), specs={"freeze": "none"}),
    Fault("weights-of-the-best-step", "The best weights are saved with the newest optimizer state.",
          FAMILY, _of_the_best_step,
          lambda training: Expected(("CK601",), parameters=_trained(training),
                                    says=("of step 2,",) if training.spec.window == 1 else ()),
          reports=("overwritten",)),
    Fault("one-bit-flipped", "One weight comes back with its last bit flipped.",
          FAMILY, _after_load(_last_bit), _at_middle("CK601")),
    Fault("weights-through-bf16", "The file holds the weights as bfloat16, and the load widens them.",
          FAMILY, _through_bf16,
          lambda training: Expected(
              ("CK504",), parameters=tuple(name for name, _ in training.model.named_parameters()), says=("bfloat16",)),
          reports=("dtype_down",)),
    Fault("weights-scaled", "A sum over ranks is divided by their number once too often.",
          FAMILY, _after_load(lambda training: [one.mul_(0.5) for one in training.model.parameters()
                                                if one.requires_grad]),
          lambda training: Expected(("CK601",), parameters=_trained(training))),
    Fault("layers-exchanged", "Two layers of one shape are written in the order of another framework.",
          FAMILY, _after_load(_exchanged),
          lambda training: Expected(("CK601",), parameters=("middle.weight", "second.weight")),
          specs={"model": "mlp"}),
    Fault("layer-transposed", "A square layer is stored transposed, as another framework has it.",
          FAMILY, _after_load(lambda training: _middle(training).weight.copy_(_middle(training).weight.T.clone())),
          _at_middle("CK601")),
    Fault("a-nan-in-a-weight", "One element is not a number after the load.",
          FAMILY, _after_load(lambda training: _middle(training).weight[1, 2:3].fill_(float("nan"))),
          _at_middle("CK601")),
    Fault("only-one-shard-loaded", "The rows of the second shard are still as they were built.",
          FAMILY, _half_of_the_rows, _at_middle("CK601"), reports=("not_loaded",)),
    Fault("tied-weights-come-back-untied", "The load gives the head a weight of its own.",
          FAMILY, _untied, lambda training: Expected(("CK311",), parameters=("tokens.weight", "head.weight")),
          specs={"model": "tied"}),
    Fault("weights-come-back-tied", "The load shares the weight of two layers that were apart.",
          FAMILY, _tied,
          lambda training: Expected(("CK307", "CK311"), parameters=("middle.weight", "second.weight")),
          specs={"model": "mlp"}),
)  # fmt: skip
