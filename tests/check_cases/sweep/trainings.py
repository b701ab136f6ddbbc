"""A healthy training of a drawn kind: built, stepped, saved on its way, and built again."""

import copy
import itertools
import warnings
from typing import Any

import torch
from torch import optim
from torch.optim import swa_utils

from ckptcheck.experiment.run import Run
from tests.check_cases.sweep.draws import Draw
from tests.check_cases.sweep.methods import optimizers, schedule
from tests.check_cases.sweep.modules import MODELS, Complex, Sparse, batch_of

Saved = dict[str, Any]
FREEZING = ("none", "none", "none", "before, left out", "before, kept", "midway", "thawed")


class Training:
    """One training. `anew` says that it stands after the change midway already, as who resumes from there builds it.

    `points` are the steps after which it is saved; what changes midway changes after the first of them.
    """

    def __init__(self, seed: int, *, anew: bool = False) -> None:
        self.draw = draw = Draw(seed)
        torch.manual_seed(seed + (7 if anew else 0))
        self.model = draw.pick("model", MODELS)()
        self._take_dtype()
        self.freezing = draw.pick("freezing", FREEZING)
        tops = [*dict.fromkeys(name.partition(".")[0] for name, _ in self.model.named_parameters())]
        self.top = draw.pick("top", tops)
        self.frozen = [name for name, _ in self.model.named_parameters() if name.partition(".")[0] == self.top]
        if len(tops) == 1 or isinstance(self.model, Sparse):
            self.freezing = draw.said["freezing"] = "none"
        for name, one in self.model.named_parameters():
            if name in self.frozen and self.freezing in ("before, left out", "before, kept", "thawed"):
                one.requires_grad_(False)
        out = set(self.frozen) if self.freezing in ("before, left out", "thawed") else set()
        self.optimizers = optimizers(draw, self.model, out)
        self._choose_the_rest()
        self.generator = torch.Generator().manual_seed(seed)
        self.step = 0

    def _take_dtype(self) -> None:
        whole = isinstance(self.model, Complex)
        dtypes = [torch.float32] if whole else [torch.float32, torch.float32, torch.bfloat16, torch.float64]
        self.dtype = self.draw.pick("dtype", dtypes)
        if not whole:
            self.model.to(self.dtype)

    def _choose_the_rest(self) -> None:
        draw, lbfgs = self.draw, any(isinstance(one, optim.LBFGS) for one in self.optimizers)
        make = schedule(draw) if self.freezing != "thawed" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.schedulers = [make(one) for one in self.optimizers] if make else []
        if len(self.schedulers) > 1 and draw.chance("one_schedule", 0.3):
            self.schedulers = self.schedulers[:1]
        self.per_epoch = draw.chance("per_epoch", 0.3)
        plain = self.dtype is torch.float32 and not isinstance(self.model, Complex | Sparse) and not lbfgs
        self.amp = draw.pick("amp", ["none", "none", "bf16", "scaler", "off"] if plain else ["none"])
        self.scaler = (
            torch.amp.GradScaler("cpu", enabled=self.amp == "scaler") if self.amp in ("scaler", "off") else None
        )
        self.windows = draw.number("accumulation", 1, 2)
        self.average = draw.pick("ema", ["none", "none", "averaged", "dict"])
        self.averaged = swa_utils.AveragedModel(self.model) if self.average == "averaged" else None
        self.shadow = {name: one.detach().clone() for name, one in self.model.named_parameters()}
        first = draw.number("first", 0, 8)
        gaps = [draw.number(f"gap{place}", 1, 5) for place in range(draw.pick("more", [1, 1, 2, 4]))]
        self.points = [first, *itertools.accumulate(gaps, initial=first)][1:]
        self.draws_rng = draw.chance("with_rng", 0.7)
        self.keys = draw.pick(
            "keys", ["model optimizer", "state_dict optimizer", "model_state_dict optimizer_state_dict"]
        )
        self.counter = draw.pick("counter", ["step", "step", "epoch", "global_step", "none"])
        self.prefix = draw.pick("prefix", ["", "", "", "module.", "_orig_mod."])

    def checkpoints(self) -> list[tuple[int, Saved]]:
        """The steps and what was saved after them."""
        found = []
        for place, point in enumerate(self.points):
            while self.step < point:
                self._train()
            found.append((self.step, copy.deepcopy(self.saved())))
            if place == 0:
                self.change()
        return found

    def change(self) -> None:
        """What is frozen or thawed midway."""
        own = [(name, one) for name, one in self.model.named_parameters() if name in self.frozen]
        if self.freezing == "midway":
            for _, one in own:
                one.requires_grad_(False)
                one.grad = None
        if self.freezing == "thawed" and not any(isinstance(one, optim.LBFGS | optim.Muon) for one in self.optimizers):
            for _, one in own:
                one.requires_grad_(True)
            with_names = "param_names" in self.optimizers[-1].param_groups[0]
            self.optimizers[-1].add_param_group({"params": own if with_names else [one for _, one in own]})

    def _train(self) -> None:
        def closure() -> torch.Tensor:
            for one in self.optimizers:
                one.zero_grad()
            for _ in range(self.windows):
                with torch.autocast("cpu", torch.bfloat16, enabled=self.amp == "bf16"):
                    loss = self.model(batch_of(self.model, self.generator)).float().square().mean()
                loss = loss if loss.requires_grad else loss + 0 * sum(one.sum() for one in self.model.parameters())
                (self.scaler.scale(loss) if self.scaler else loss).backward()
            return loss

        loss = closure()
        for one in self.optimizers:
            if self.scaler and _has_gradient(one):
                self.scaler.step(one)
            elif isinstance(one, optim.LBFGS):
                one.step(closure)
            else:
                one.step()
        if self.scaler and any(_has_gradient(one) for one in self.optimizers):
            self.scaler.update()
        self.step += 1
        self._after(float(loss.detach()))

    def _after(self, loss: float) -> None:
        for one in self.schedulers:
            if not self.per_epoch or self.step % 3 == 0:
                one.step(loss) if isinstance(one, optim.lr_scheduler.ReduceLROnPlateau) else one.step()
        if self.averaged is not None:
            self.averaged.update_parameters(self.model)
        for name, one in self.model.named_parameters():
            self.shadow[name].lerp_(one.detach(), 0.1)

    def saved(self) -> Saved:
        """What a script saves."""
        model_key, optimizer_key = self.keys.split()
        one_or_all = [one.state_dict() for one in self.optimizers]
        state: Saved = {model_key: {self.prefix + name: one for name, one in self.model.state_dict().items()},
                        optimizer_key: one_or_all[0] if len(one_or_all) == 1 else one_or_all}  # fmt: skip
        if self.counter != "none":
            state[self.counter] = self.step // 3 if self.counter == "epoch" else self.step
        if self.schedulers:
            held = [one.state_dict() for one in self.schedulers]
            state["scheduler"] = held[0] if len(held) == 1 else held
        state |= {"scaler": self.scaler.state_dict()} if self.scaler else {}
        state |= {"rng": torch.get_rng_state()} if self.draws_rng else {}
        state |= {"ema": self.averaged.state_dict()} if self.averaged is not None else {}
        return state | ({"ema": self.shadow} if self.average == "dict" else {})

    def run(self) -> Run:
        """The training as a target, with a load as scripts have it."""
        model_key, optimizer_key = self.keys.split()

        def load(path: Any) -> None:
            state = torch.load(path, weights_only=False)
            self.model.load_state_dict({name.removeprefix(self.prefix): one for name, one in state[model_key].items()})
            for parts, held in ((self.optimizers, state[optimizer_key]), (self.schedulers, state.get("scheduler"))):
                for one, own in zip(parts, held if isinstance(held, list) else [held], strict=False):
                    one.load_state_dict(own)
            if self.scaler:
                self.scaler.load_state_dict(state["scaler"])
            if self.averaged is not None:
                self.averaged.load_state_dict(state["ema"])

        return Run(model=self.model, optimizer=self.optimizers, step=lambda step: None, load=load,
                   scheduler=self.schedulers or None, scaler=self.scaler, ema=self.averaged)  # fmt: skip


def _has_gradient(optimizer: optim.Optimizer) -> bool:
    """Whether it has anything to step: a scaler refuses one that has not."""
    return any(one.grad is not None for group in optimizer.param_groups for one in group["params"])
