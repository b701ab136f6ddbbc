"""A small training with every kind of state, whose load makes the mistake that a test writes into it."""

BODY = """
import random
import numpy as np

class Average:
    def __init__(self, model):
        self.means = {name: one.detach().clone() for name, one in model.named_parameters()}
    def update(self, model):
        for name, one in model.named_parameters():
            self.means[name].lerp_(one.detach(), 0.1)
    def state_dict(self):
        return self.means
    def load_state_dict(self, state):
        for name, one in state.items():
            self.means[name].copy_(one)

class Batches:
    def __init__(self):
        self.position = 0
    def next(self):
        self.position += 1
        return torch.linspace(-1, 1, 12).reshape(4, 3) * self.position
    def state_dict(self):
        return {"position": self.position}
    def load_state_dict(self, state):
        self.position = state["position"]

class Training:
    def __init__(self):
        torch.manual_seed(1), random.seed(2), np.random.seed(3)
        self.model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(5, 1))
        self.optimizer = torch.optim.Adam([
            {"params": list(self.model[0].parameters()), "lr": 1e-2},
            {"params": [*self.model[1].parameters(), *self.model[3].parameters()], "weight_decay": 0.1},
        ], lr=1e-3)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        self.average, self.batches, self.extra, self.temperature = Average(self.model), Batches(), Batches(), 1.0
    def step(self, s):
        seen = self.batches.next() * random.uniform(0.9, 1.1) + np.random.uniform() + self.extra.next().mean()
        self.scaler.scale(self.model(seen).square().mean() / self.temperature).backward()
        self.temperature += 0.5
        if s % 2 == 0:
            self.scaler.step(self.optimizer), self.scaler.update(), self.optimizer.zero_grad(), self.scheduler.step()
            self.average.update(self.model)
    def parts(self):
        return dict(model=self.model, optimizer=self.optimizer, scheduler=self.scheduler, scaler=self.scaler,
                    ema=self.average, data=self.batches, extra={"counted": self.extra})
    def save(self, path):
        kept = {name: one.state_dict() for name, one in self.parts().items() if name != "extra"}
        kept |= {"extra": self.extra.state_dict(), "temperature": self.temperature, "grads": self.grads(),
                 "rng": [torch.get_rng_state(), random.getstate(), np.random.get_state()]}
        torch.save(kept, path)
    def grads(self):
        return [one.grad for one in self.model.parameters()]
    def load(self, path, left_out=()):
        kept = torch.load(path, weights_only=False)
        for name, one in self.parts().items():
            if name != "extra" and name not in left_out:
                one.load_state_dict(kept[name])
        self.extra.load_state_dict(kept["extra"])
        self.temperature = kept["temperature"]
        for one, grad in zip(self.model.parameters(), kept["grads"]):
            one.grad = grad
        for name, put, state in zip(("torch", "python", "numpy"),
                                    (torch.set_rng_state, random.setstate, np.random.set_state), kept["rng"]):
            if name not in left_out:
                put(state)

def build(ctx):
    training = Training()
    model, optimizer = training.model, training.optimizer
    run = ckptcheck.Run(step=training.step, save=training.save, **training.parts())
    def load(path):
        {fault}
    run.load = load
    return run
"""
LOAD = "training.load(path)"
"""The load without a mistake."""
