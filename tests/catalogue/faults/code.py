"""What training reads and no checkpoint holds: attributes, modes, hooks, caches, values kept beside the state."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn

from tests.catalogue.fault import Expected, Fault
from tests.catalogue.training import Training

FAMILY: Final = "code"


def _when_resumed(change: Callable[[Training], object]) -> Callable[[Training], None]:
    return lambda training: training.after_restore.append(lambda: change(training))


def first_update(training: Training) -> int:
    """The first step after the load that updates."""
    return next(s for s in range(training.spec.at + 1, training.spec.steps + 1) if s % training.spec.window == 0)


def _in_the_loss(training: Training) -> Expected:
    return Expected(("CK606",), step=training.spec.at + 1, stages=("loss",), says=("loss",))


def _in_the_gradients(training: Training) -> Expected:
    return Expected(("CK606",), step=training.spec.at + 1, stages=("grad",), says=("gradients",))


def _in_the_update(*names: str) -> Callable[[Training], Expected]:
    def expect(training: Training) -> Expected:
        trained = tuple(name for name, one in training.model.named_parameters() if one.requires_grad)
        return Expected(("CK607",), step=first_update(training), stages=("param",), parameters=names or trained)

    return expect


def _temperature(training: Training) -> None:
    """Scores are divided by a number that grows with every step of this process."""
    plain, made = training.loss, [0]

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        made[0] += 1
        return plain(features, labels) / (1 + 0.1 * made[0])

    training.loss = loss  # type: ignore[method-assign]


def _summed(training: Training) -> None:
    plain = training.loss
    training.loss = lambda features, labels: plain(features, labels) * len(labels)  # type: ignore[method-assign]


def _dropout(training: Training) -> None:
    for one in training.model.modules():
        if isinstance(one, nn.Dropout):
            one.p = 0.5


def _forward_hook(training: Training) -> None:
    handle = training.model.get_submodule("head").register_forward_hook(
        lambda module, inputs, output: 3 * torch.tanh(output / 3)
    )
    training.after_restore.append(handle.remove)


def _gradient_hook(training: Training) -> None:
    handle = training.model.get_parameter("middle.weight").register_hook(lambda gradient: 0.1 * gradient)
    training.after_restore.append(handle.remove)


def _slow_weights(training: Training) -> None:
    """Lookahead: after each update the weights go half the way back to slow ones, which it keeps to itself."""
    slow: dict[str, Tensor] = {}
    update = training.update

    def looked_ahead(loss: float) -> None:
        update(loss)
        with torch.no_grad():
            for name, one in training.model.named_parameters():
                if one.requires_grad:
                    kept = slow.setdefault(name, one.detach().clone())
                    one.lerp_(kept, 0.5)
                    kept.lerp_(one, 0.1)

    training.update = looked_ahead  # type: ignore[method-assign]


def _normalised(training: Training) -> None:
    """Rows are scaled to length one after each update, by a process that began the training."""
    update = training.update

    def constrained(loss: float) -> None:
        update(loss)
        if not training.resumed:
            with torch.no_grad():
                weight = training.model.get_parameter("middle.weight")
                weight.div_(weight.norm(dim=1, keepdim=True))

    training.update = constrained  # type: ignore[method-assign]


def _noise_by_call(training: Training) -> None:
    """Gradient noise decays with the number of updates, which the optimizer's wrapper counts for itself."""
    update, made = training.update, [0]

    def noised(loss: float) -> None:
        made[0] += 1
        for one in training.model.parameters():
            if one.grad is not None:
                one.grad.mul_(1 + 0.5 / made[0])
        update(loss)

    training.update = noised  # type: ignore[method-assign]
    training.clip = 1e6


def _cache(training: Training) -> None:
    """The norm of the weights is taken when the training is built, and renewed every fourth step."""
    cached = [training.model.get_parameter("middle.weight").detach().norm()]
    plain = training.loss

    def renew(s: int) -> None:
        if s % 4 == 0:
            cached[0] = training.model.get_parameter("middle.weight").detach().norm()

    training.loss = lambda features, labels: plain(features, labels) * cached[0]  # type: ignore[method-assign]
    training.after_step.append(renew)


def _previous_loss(training: Training) -> None:
    """Each loss is weighed by the one before it, which the loop keeps in a local variable."""
    plain, last = training.loss, [1.0]

    def loss(features: Tensor, labels: Tensor) -> Tensor:
        now = plain(features, labels) * (0.5 + 0.1 * last[0])
        last[0] = float(now.detach())
        return now

    training.loss = loss  # type: ignore[method-assign]


def _detached(training: Training) -> None:
    """A part of the gradients is thrown away while "warming up", which a resumed run believes to be."""
    training.between.append(
        lambda s: (
            [one.grad.mul_(0.5) for one in training.model.parameters() if one.grad is not None]
            if training.resumed and s <= training.spec.at + 1
            else None
        )
    )


FAULTS: Final = (
    Fault("temperature-not-saved", "The loss is divided by a temperature that counts this process's steps.",
          FAMILY, _temperature, _in_the_loss, reports=("loop", "unknown")),
    Fault("another-reduction", "The resumed run sums the losses of a batch, where the first one averaged them.",
          FAMILY, _when_resumed(_summed), _in_the_loss, reports=("flag_ignored",)),
    Fault("another-dropout", "The resumed run builds the model from newer defaults, with another dropout.",
          FAMILY, _when_resumed(_dropout), _in_the_loss, reports=("flag_ignored",)),
    Fault("left-in-eval-mode", "The load evaluates the model that it loaded, and leaves it in eval mode.",
          FAMILY, _when_resumed(lambda training: training.model.eval()),
          lambda training: Expected(("CK601",), says=("eval",)), reports=("mode",)),
    Fault("forward-hook-lost", "A forward hook is registered at the first start only.",
          FAMILY, _forward_hook, _in_the_loss),
    Fault("gradient-hook-lost", "A hook on a parameter's gradient does not come back.",
          FAMILY, _gradient_hook,
          lambda training: Expected(("CK606",), step=training.spec.at + 1, stages=("grad",),
                                    parameters=("middle.weight",) if training.clip > 1e3 else (),
                                    says=("middle.weight",))),
    Fault("another-clip", "The resumed run clips gradients at another norm.",
          FAMILY, _when_resumed(lambda training: setattr(training, "clip", 1e-3)),
          lambda training: Expected(("CK606",), step=first_update(training), stages=("grad",)),
          reports=("flag_ignored",)),
    Fault("lookahead-keeps-its-own", "Slow weights stand in no state_dict.",
          FAMILY, _slow_weights, _in_the_update(), reports=("wrap",)),
    Fault("constraint-lost", "Weights are normalised after each update by the first process only.",
          FAMILY, _normalised, _in_the_update("middle.weight")),
    Fault("gradient-scale-by-call-count", "Gradients are scaled by a factor that follows the number of calls.",
          FAMILY, _noise_by_call,
          lambda training: Expected(("CK606",), step=first_update(training), stages=("grad",)), reports=("wrap",)),
    Fault("stale-cache", "A number taken from the initial weights is used until it is renewed.",
          FAMILY, _cache, _in_the_loss),
    Fault("last-loss-not-saved", "The loss is weighed by the one before it, which is a local variable.",
          FAMILY, _previous_loss, _in_the_loss, reports=("loop",)),
    Fault("warm-up-of-gradients-again", "Gradients are halved in the first step of each process.",
          FAMILY, _detached, _in_the_gradients, specs={"window": 1}),
)  # fmt: skip
