"""Optimizers that differ from those of torch in one odd way each, legal or not."""

import os
import sys
import weakref

import torch


class Plain(torch.optim.Optimizer):
    """Gradient descent, parameter by parameter; a subclass changes one thing."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.one(p, group)

    def one(self, p, group):
        p.sub_(group["lr"] * p.grad)


class Lookahead(Plain):
    """Slow weights and a counter that no `state_dict()` has; they act every `every` steps."""

    every = 5

    def __init__(self, params, lr=0.01):
        super().__init__(params, lr)
        self.made, self.slow = 0, {}

    @torch.no_grad()
    def step(self, closure=None):
        self.slow = self.slow or {p: p.clone() for group in self.param_groups for p in group["params"]}
        super().step()
        self.made += 1
        if self.made % self.every == 0:
            for p, slow in self.slow.items():
                slow.add_(0.5 * (p - slow))
                p.copy_(slow)


class LookaheadOfTen(Lookahead):
    every = 10


class KeptLookahead(Lookahead):
    """The same, and all of it in the state: legal."""

    def state_dict(self):
        slow = [self.slow[p] for group in self.param_groups for p in group["params"]] if self.slow else []
        return {**super().state_dict(), "made": self.made, "slow": slow}

    def load_state_dict(self, told):
        super().load_state_dict({key: told[key] for key in ("state", "param_groups")})
        self.made = told["made"]
        self.slow = dict(zip((p for group in self.param_groups for p in group["params"]), told["slow"], strict=True))


class CountsForItself(Plain):
    """Counts its calls on the instance, and makes nothing of the count: legal."""

    calls = 0

    def step(self, closure=None):
        self.calls += 1
        super().step()


class NotRepeating(Plain):
    """Scales its steps by what no seed reaches."""

    def one(self, p, group):
        p.sub_(group["lr"] * p.grad * (1 + int.from_bytes(os.urandom(2)) / 2**16))


class CannotBeSaved(Plain):
    """Holds a function in its state."""

    def one(self, p, group):
        self.state[p]["call"] = lambda: None
        super().one(p, group)


class HoldsOldState:
    """Forwards to another optimizer, and goes on with the state that it had before a load."""

    def __init__(self, params, lr=0.01):
        self.inner = torch.optim.SGD(params, lr=lr, momentum=0.9)
        self.step = self.inner.step
        self.momenta = self.inner.state

    param_groups = property(lambda self: self.inner.param_groups)
    state = property(lambda self: self.momenta)

    def zero_grad(self, set_to_none=True):
        self.inner.zero_grad(set_to_none)

    def state_dict(self):
        return self.inner.state_dict()

    def load_state_dict(self, told):
        self.inner.load_state_dict(told)
        self.inner.state = self.momenta


class DecaysTheRested(Plain):
    """Pushes a parameter that had no gradient for more than ten steps."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            resting = [p for p in group["params"] if p.grad is None]
            group["rested"] = group.get("rested", 0) + 1 if resting else 0
            for p in resting if group["rested"] > 10 else ():
                p.mul_(0.9)


class MakesStateAtOnce(Plain):
    """Makes state for every parameter at its first step."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p].setdefault("momentum", torch.zeros_like(p))
        super().step()


class OneDimension(Plain):
    """Is for biases and scales."""

    def one(self, p, group):
        if p.dim() != 1:
            raise ValueError("wants one dimension")
        super().one(p, group)


class OneDimensionFromTheBegin(Plain):
    def __init__(self, params, lr=0.01):
        params = list(params)
        if any(p.dim() != 1 for p in params):
            raise ValueError("wants one dimension")
        super().__init__(params, lr)


class Leaves(Plain):
    """Ends the process in its step."""

    def one(self, p, group):
        sys.exit(3)


class DoesNothing(Plain):
    def one(self, p, group):
        pass


class DividesByItsNorm(Plain):
    def one(self, p, group):
        p.sub_(group["lr"] * p.grad / p.grad.norm())


def of_model_params(model_params):
    return Plain(model_params)


def that_says_what_it_makes(weights) -> torch.optim.Optimizer:
    return Plain(weights)


class KeyedById(Plain):
    """Keeps its momentum in `state` under `id(p)`, which is another number after a resume."""

    def one(self, p, group):
        kept = self.state[id(p)]
        kept["momentum"] = 0.9 * kept.get("momentum", torch.zeros_like(p)) + p.grad
        p.sub_(group["lr"] * kept["momentum"])


_MOMENTA = {}


class KeyedByIdElsewhere(Plain):
    """Keeps it in a global of the module."""

    def one(self, p, group):
        _MOMENTA[id(p)] = 0.9 * _MOMENTA.get(id(p), torch.zeros_like(p)) + p.grad
        p.sub_(group["lr"] * _MOMENTA[id(p)])


class HoldsReferences(Plain):
    """Remembers which parameters it has seen, by weak references: legal."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, lr)
        self.seen = []

    def one(self, p, group):
        self.seen.append(weakref.ref(p))
        super().one(p, group)


class CountsBesideReferences(HoldsReferences):
    """And scales its steps by a count that no checkpoint holds."""

    made = 0

    def one(self, p, group):
        self.made += 1
        self.seen.append(weakref.ref(p))
        p.sub_(group["lr"] * p.grad / self.made)


class PutsItsRateBack(Plain):
    """A load gives it the learning rate that it was made with."""

    def load_state_dict(self, told):
        super().load_state_dict(told)
        for group in self.param_groups:
            group["lr"] = self.defaults["lr"]


class SharpnessAware(Plain):
    """Steps up, asks its closure for other gradients, and steps down from where it was: legal."""

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is not None, "needs a closure"
        held = [(p, p.detach().clone()) for group in self.param_groups for p in group["params"] if p.grad is not None]
        for p, _ in held:
            p.add_(0.05 * p.grad)
            p.grad = None
        with torch.enable_grad():
            closure()
        for p, value in held:
            p.copy_(value)
        super().step()


class SyncsAll(Plain):
    """Every fifth step pulls all parameters to slow ones, also those that rest."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p].setdefault("slow", p.clone())
        super().step()
        for group in self.param_groups:
            group["made"] = group.get("made", 0) + 1
            for p in group["params"] if group["made"] % 5 == 0 else ():
                slow = self.state[p].get("slow", p)
                slow.lerp_(p, 0.5)
                p.copy_(slow)


class ScheduleInside(Plain):
    """Has a schedule of its own, and saves it: legal, though it does not take another group later."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, lr)
        self.schedule = torch.optim.lr_scheduler.StepLR(self, 3)

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        self.schedule.step()

    def state_dict(self):
        return {**super().state_dict(), "schedule": self.schedule.state_dict()}

    def load_state_dict(self, told):
        super().load_state_dict({key: told[key] for key in ("state", "param_groups")})
        self.schedule.load_state_dict(told["schedule"])
