"""Every optimizer of a script is seen once for each update, whatever it is made of, and numbered alike in two runs."""

import functools
import gc
import weakref

import pytest
import torch
from torch import nn

from ckptcheck.trace.script.optimizers import members
from tests.optimizers.real import torch_optimizers
from tests.trace.script.told import listening, train

SPECIAL = {"Muon": {"weight_decay": 0.1}}


def derived(kind):
    class Mine(kind):
        def step(self, *args):
            return super().step(*args)

    return Mine


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False))


@pytest.mark.parametrize("name", torch_optimizers())
@pytest.mark.parametrize("how", ["plain", "scheduled, and replaced", "derived", "derived, its base alive"])
def test_each_torch_optimizer_is_told_of_once_for_each_update(name, how):
    kind = getattr(torch.optim, name)
    with listening() as told:
        model = net() if name != "SparseAdam" else nn.Embedding(4, 2, sparse=True)
        if how.endswith("alive"):
            other = kind(net().parameters())
            assert other.param_groups
        if how.startswith("derived"):
            kind = derived(kind)
        optimizer = kind(model.parameters(), **SPECIAL.get(name, {}))
        if how.startswith("scheduled"):
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        if how.endswith("replaced"):
            inner = optimizer.step
            optimizer.step = functools.wraps(inner)(functools.partial(inner))

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3) if name != "SparseAdam" else torch.tensor([1])).square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            closure()
            optimizer.step(*([closure] if name == "LBFGS" else []))
            if how.startswith("scheduled"):
                schedule.step()
        assert told.updates == [f"before {kind.__name__}", f"after {kind.__name__}"] * 3
        assert told.optimizers.all()[-1] is optimizer and len(told.losses) >= 3
        assert set(told.parts.get("schedule", {})) == ({""} if how.startswith("scheduled") else set())


class NoConstructor(torch.optim.Optimizer):
    """As some optimizers in the wild: torch's constructor is never run, so torch puts no hooks around `step`."""

    def __init__(self, params):
        self.param_groups = [{"params": list(params), "lr": 0.1}]
        self.state = {}
        self.defaults = {}

    def zero_grad(self):
        for tensor in members(self):
            tensor.grad = None

    def step(self):
        with torch.no_grad():
            for tensor in members(self):
                self.state.setdefault(tensor, {"sum": torch.zeros_like(tensor)})["sum"] += tensor.grad
                tensor.sub_(0.1 * tensor.grad)


class Delegating(torch.optim.Optimizer):
    """As accelerate's AcceleratedOptimizer: no constructor, all is the inner one's."""

    def __init__(self, inner):
        self.optimizer = inner

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)

    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)

    def step(self, closure=None):
        return self.optimizer.step(closure)


class Lookahead(torch.optim.Optimizer):
    """Slow weights of its own around an inner optimizer."""

    def __init__(self, inner):
        self.inner = inner
        super().__init__(inner.param_groups, {})

    def step(self, closure=None):
        loss = self.inner.step(closure)
        with torch.no_grad():
            for tensor in members(self):
                slow = self.state[tensor].setdefault("slow", tensor.clone())
                slow.lerp_(tensor, 0.5)
        return loss


class SAM(torch.optim.Optimizer):
    """Two passes, one update, by a base optimizer that shares the groups."""

    def __init__(self, params, kind, **defaults):
        super().__init__(params, defaults)
        self.base = kind(self.param_groups, **defaults)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        for tensor in members(self):
            self.state[tensor]["old"] = tensor.clone()
            tensor.add_(0.05 * tensor.grad)

    @torch.no_grad()
    def second_step(self):
        for tensor in members(self):
            tensor.copy_(self.state[tensor]["old"])
        self.base.step()

    def step(self, closure=None):
        self.first_step()
        with torch.enable_grad():
            closure()
        self.second_step()


class Borrowing(torch.optim.Optimizer):
    """Keeps another one and never steps it."""

    def __init__(self, params):
        params = list(params)
        super().__init__(params, {"lr": 0.1})
        self.reference = torch.optim.SGD(params, lr=0.1)

    @torch.no_grad()
    def step(self, closure=None):
        for tensor in members(self):
            tensor.sub_(0.1 * tensor.grad)


WRAPPING = {
    "no constructor": (NoConstructor, NoConstructor, 1),
    "delegating": (lambda params: Delegating(torch.optim.SGD(params, lr=0.1)), torch.optim.SGD, 1),
    "lookahead": (lambda params: Lookahead(torch.optim.Adam(params)), torch.optim.Adam, 2),
    "sam": (lambda params: SAM(params, torch.optim.SGD, lr=0.1, momentum=0.9), torch.optim.SGD, 2),
    "borrowing": (Borrowing, Borrowing, 1),
}


@pytest.mark.parametrize("name", WRAPPING)
def test_of_an_optimizer_around_another_the_inner_one_is_told_of_once(name):
    make, seen, known = WRAPPING[name]
    with listening() as told:
        model = net()
        optimizer = make(model.parameters())

        def closure():
            optimizer.zero_grad()
            model(torch.ones(2, 3)).square().sum().backward()

        for _ in range(3):
            closure()
            optimizer.step(*([closure] if name == "sam" else []))
        assert told.updates == [f"before {seen.__name__}", f"after {seen.__name__}"] * 3
        assert type(told.optimizers.all()[0]) is seen
        # One that keeps state of its own comes along, so that this state is seen.
        assert [type(one) for one in told.optimizers.all()] == [seen, type(optimizer)][:known]


def test_sam_called_in_two_halves_is_one_update_by_its_base():
    with listening() as told:
        model = net()
        optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1)
        for half in (optimizer.first_step, optimizer.second_step):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            half()
        assert told.updates == ["before SGD", "after SGD"]


def test_no_constructor_and_a_schedule_that_takes_hold_of_its_step_first():
    with listening() as told:
        model = net()
        optimizer = NoConstructor(model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        train(model, optimizer, 2)
        schedule.step()
        assert told.updates == ["before NoConstructor", "after NoConstructor"] * 2
        assert told.parts["schedule"] == {"": schedule}
    assert not hasattr(NoConstructor.step, "__wrapped__")


class Lists:
    """An Adam as in lectures: three lists, and numbers."""

    def __init__(self, params, lr=0.1, betas=(0.9, 0.99)):
        self.params, self.lr, self.betas, self.t = list(params), lr, betas, 0
        self.m = [torch.zeros_like(one) for one in self.params]
        self.v = [torch.zeros_like(one) for one in self.params]

    def zero_grad(self):
        for one in self.params:
            one.grad = None

    @torch.no_grad()
    def step(self):
        self.t += 1
        for one, first, second in zip(self.params, self.m, self.v, strict=True):
            first.lerp_(one.grad, 0.1)
            second.lerp_(one.grad**2, 0.01)
            one.sub_(self.lr * first / (second.sqrt() + 1e-8))


class Slots:
    """Groups in slots, and no weak reference to be had."""

    __slots__ = ("param_groups", "state")

    def __init__(self, params):
        self.param_groups, self.state = [{"params": list(params), "lr": 0.1}], {}

    zero_grad = NoConstructor.zero_grad

    def step(self):
        NoConstructor.step(self)


def test_an_optimizer_without_groups_is_seen_with_its_lists_as_state_and_its_numbers_as_hyperparameters():
    step = Lists.step
    with listening() as told:
        model = net()
        optimizer = Lists(model.parameters())
        train(model, optimizer, 2)
        assert told.updates == ["before Lists", "after Lists"] * 2
        (seen,) = told.optimizers.all()
        (group,) = seen.param_groups
        assert all(one is other for one, other in zip(group["params"], model.parameters(), strict=True))
        assert {key: group[key] for key in group if key != "params"} == {"lr": 0.1, "betas": (0.9, 0.99), "t": 2}
        assert {tensor: dict(state) for tensor, state in seen.state.items()} == {
            tensor: {"m": first, "v": second}
            for tensor, first, second in zip(optimizer.params, optimizer.m, optimizer.v, strict=True)
        }
        assert told.names == [name for name, _ in model.named_parameters()] and not told.notes.all()
        assert Lists.step is not step
    assert Lists.step is step


def test_an_optimizer_in_slots_is_seen_beside_one_of_torch():
    with listening() as told:
        first, second = net(), net()
        known, other = torch.optim.SGD(first.parameters(), lr=0.1), Slots(second.parameters())
        for _ in range(2):
            for model, optimizer in ((first, known), (second, other)):
                train(model, optimizer)
        assert told.updates == ["before SGD", "after SGD", "before Slots", "after Slots"] * 2
        assert list(told.roots) == ["Sequential#1", "Sequential#2"]


def test_an_optimizer_that_steps_with_a_closure_only_is_seen_from_its_first_step():
    class Closure(Lists):
        def step(self, closure):
            self.zero_grad()
            closure()
            super().step()

    with listening() as told:
        model = net()
        optimizer = Closure(model.parameters())
        model(torch.ones(2, 3))
        optimizer.step(lambda: model(torch.ones(2, 3)).sum().backward())
        assert told.updates == ["before Closure", "after Closure"]


def test_updates_by_hand_are_noted_with_the_parameters():
    with listening() as told:
        model = net()
        for _ in range(2):
            model(torch.ones(2, 3)).sum().backward()
            with torch.no_grad():
                for one in model.parameters():
                    one.sub_(0.1 * one.grad)
        assert not told.updates
        del model
        train(other := net(), torch.optim.SGD(other.parameters(), lr=0.1), 3)
        (note,) = told.notes.all()
        assert note.startswith("2 parameters get gradients and no optimizer is seen to hold them (Linear.weight)")


def test_gradients_that_are_left_over_are_not_noted():
    with listening() as told:
        model, other = net(), net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        del optimizer
        train(other, torch.optim.SGD(other.parameters(), lr=0.1), 3)
        assert not told.notes.all() and model[0].weight.grad is not None


def test_an_optimizer_without_groups_is_not_kept_alive():
    with listening() as told:
        model = net()
        optimizer = Lists(model.parameters())
        train(model, optimizer)
        gone = weakref.ref(optimizer)
        del optimizer
        assert gone() is None and told.optimizers.all() == []


def test_the_order_is_that_of_making_and_not_that_of_stepping():
    with listening() as told:
        generator, critic = net(), net()
        one = torch.optim.Adam(generator.parameters())
        other = torch.optim.SGD(critic.parameters(), lr=0.1)
        assert told.optimizers.all() == [one, other]
        for model, optimizer in ((critic, other), (critic, other), (generator, one)):
            train(model, optimizer)
            assert told.optimizers.all() == [one, other]


@pytest.mark.parametrize("scope", ["all", "head"])
def test_an_optimizer_that_a_cycle_keeps_alive_counts_no_more_when_one_made_later_has_stepped(scope):
    gc.disable()
    try:
        with listening() as told:
            model = net()
            first = torch.optim.SGD(model.parameters() if scope == "all" else model[0].parameters(), lr=0.1)
            first.cycle = first
            train(model, first, 2)
            del first
            second = torch.optim.Adam(model[1].parameters())
            train(model, second)
            assert told.optimizers.all() == [second]
    finally:
        gc.enable()


def test_optimizers_that_share_parameters_and_take_turns_all_count():
    with listening() as told:
        model = net()
        first, second = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model[1].parameters())
        assert told.optimizers.all() == [first, second]
        train(model, first)
        train(model, second)
        for optimizer in (first, first, second, second):
            train(model, optimizer)
            assert told.optimizers.all() == [first, second]


def test_one_that_is_made_anew_and_never_stepped_does_not_count():
    with listening() as told:
        model = net()
        first = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, first)
        spare = torch.optim.Adam(model.parameters())
        assert told.optimizers.all() == [first] and spare.param_groups


def test_a_step_that_raises_is_forgotten():
    class Raising(torch.optim.SGD):
        fail = True

        def step(self, closure=None):
            if self.fail:
                raise KeyError("mine")
            return super().step(closure)

    with listening() as told:
        model = net()
        optimizer = Raising(model.parameters(), lr=0.1)
        with pytest.raises(KeyError, match="mine"):
            train(model, optimizer)
        optimizer.fail = False
        train(model, optimizer)
        assert told.updates == ["before Raising", "before Raising", "after Raising"]


def test_optimizers_in_backward_are_each_told_of():
    with listening() as told:
        model = net()
        for parameter in model.parameters():
            own = torch.optim.SGD([parameter], lr=0.1)
            parameter.register_post_accumulate_grad_hook(lambda _, own=own: own.step())
        for _ in range(2):
            model(torch.ones(2, 3)).sum().backward()
        assert told.updates == ["before SGD", "after SGD"] * 4 and len(told.optimizers.all()) == 2
        assert not told.notes.all()
