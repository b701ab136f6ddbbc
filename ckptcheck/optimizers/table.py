"""What each optimizer keeps for a parameter: every class of torch.optim, and common ones of other packages.

Rows of torch.optim hold for torch 1.12 to 2.13; the tests build each from the real optimizer. Rows of other packages
are from files that they wrote, or from their source.
"""

from collections.abc import Mapping
from typing import Final

from ckptcheck.optimizers.row import Kind, Row

SHARED_HYPERPARAMETERS: Final = frozenset(
    {
        "lr", "weight_decay", "maximize", "foreach", "capturable", "differentiable", "fused", "params", "param_names",
        "initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "lr_scale", "name", "param_group",
        "swa_lr", "lr_mult", "decay_mult",
    }
)  # fmt: skip
"""What most groups have, what schedulers plant in them, and what trainers tag them with: tells no class."""

KEPT_BESIDE: Final = frozenset({"fp32_param", "master_param"})
"""State keys of trainers in mixed precision, which keep the float32 weights beside any optimizer's state."""

SECOND_MOMENTS: Final[Mapping[str, str]] = {
    "exp_avg_sq": "exp_avg", "max_exp_avg_sq": "exp_avg", "exp_inf": "exp_avg", "square_avg": "grad_avg", "sum": "",
    "acc_delta": "", "variance": "", "row_var": "", "col_var": "", "exp_avg_sq_row": "", "exp_avg_sq_col": "",
    "exp_avg_var": "", "max_exp_avg_var": "",
}  # fmt: skip
"""State keys whose values are means or sums of squares, or of magnitudes, and never below zero, to the key of the first
moment that an update divides by them; "" where there is none."""

_P, _S, _C = Kind.PARAMETER, Kind.SCALAR, Kind.COUNTER
_STEP = {"step": _C}
_MOMENTS = {**_STEP, "exp_avg": _P, "exp_avg_sq": _P}
_MAX = {"max_exp_avg_sq": _P}
_ADAM = frozenset({"betas", "eps"})
_DECOUPLED = frozenset({"decoupled_weight_decay"})


def _set(*keys: str) -> frozenset[str]:
    return frozenset(keys)


TORCH: Final = (
    Row("SGD", {"momentum_buffer": _P}, _set(), _set("momentum", "dampening", "nesterov"),
        when={"momentum_buffer": "momentum"}),
    Row("Adam", {**_MOMENTS, **_MAX}, _set(*_MOMENTS), _ADAM | {"amsgrad"},
        {"decoupled_weight_decay": False}, {"max_exp_avg_sq": "amsgrad"}),
    Row("AdamW", {**_MOMENTS, **_MAX}, _set(*_MOMENTS), _ADAM | {"amsgrad"},
        {"decoupled_weight_decay": True}, {"max_exp_avg_sq": "amsgrad"}),
    Row("NAdam", {**_MOMENTS, "mu_product": _S}, _set(*_MOMENTS, "mu_product"), _ADAM | {"momentum_decay"},
        perhaps=_DECOUPLED),
    Row("RAdam", _MOMENTS, _set(*_MOMENTS), _ADAM | {"weight_decay"}, perhaps=_DECOUPLED),
    Row("Adamax", {**_STEP, "exp_avg": _P, "exp_inf": _P}, _set("step", "exp_avg", "exp_inf"),
        _ADAM | {"weight_decay"}),
    Row("Adadelta", {**_STEP, "square_avg": _P, "acc_delta": _P}, _set("step", "square_avg", "acc_delta"),
        _set("rho", "eps")),
    Row("Adagrad", {**_STEP, "sum": _P}, _set("step", "sum"), _set("lr_decay", "eps", "initial_accumulator_value")),
    Row("RMSprop", {**_STEP, "square_avg": _P, "momentum_buffer": _P, "grad_avg": _P}, _set("step", "square_avg"),
        _set("momentum", "alpha", "eps", "centered"), when={"momentum_buffer": "momentum", "grad_avg": "centered"}),
    Row("Rprop", {**_STEP, "prev": _P, "step_size": _P}, _set("step", "prev", "step_size"), _set("etas", "step_sizes")),
    Row("ASGD", {**_STEP, "eta": _S, "mu": _S, "ax": _P}, _set("step", "eta", "mu", "ax"),
        _set("lambd", "alpha", "t0")),
    Row("Adafactor", {**_STEP, "row_var": Kind.ROWS, "col_var": Kind.COLUMNS, "variance": _P}, _set("step"),
        _set("beta2_decay", "eps", "d")),
    Row("SparseAdam", _MOMENTS, _set(*_MOMENTS), _ADAM, lacks=_set("weight_decay")),
    Row("LBFGS", {"func_evals": _S, "n_iter": _C, "d": Kind.FLAT, "t": _S, "old_dirs": Kind.LIST, "old_stps": Kind.LIST,
                  "ro": Kind.LIST, "H_diag": _S, "prev_flat_grad": Kind.FLAT, "prev_loss": _S, "al": Kind.LIST},
        _set("func_evals", "n_iter"),
        _set("max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size", "line_search_fn"),
        whole_list=True),
    Row("Muon", {"momentum_buffer": _P}, _set("momentum_buffer"),
        _set("momentum", "nesterov", "ns_coefficients", "eps", "ns_steps", "adjust_lr_fn")),
)  # fmt: skip

_QUANTISED = "__bnb_optimizer_quant_state__."
_BITSANDBYTES = {
    **_STEP,
    **{f"{place}{key}": kind
       for place in ("", _QUANTISED)
       for key, kind in {"state1": _P, "state2": _P, "qmap1": Kind.TABLE, "qmap2": Kind.TABLE, "absmax1": Kind.TABLE,
                         "absmax2": Kind.TABLE}.items()},
}  # fmt: skip
_BNB_GROUP = _ADAM | {"alpha", "t_alpha", "t_beta3"}
_MOMENT_PARTS = {
    "Fp8": {"codes": _P, "scale": Kind.TABLE, "block_size": _S},
    "8bit": {"codes": _P, "scale": Kind.TABLE, "qmap": Kind.TABLE, "signed": _S, "block_size": _S},
    "4bit": {"codes": Kind.TABLE, "scale": Kind.TABLE, "qmap": Kind.TABLE, "signed": _S, "block_size": _S,
             "_shape": Kind.LIST},
}  # fmt: skip
"""What torchao keeps of a moment. 4 bit codes are flat, two in a byte."""


def _low_bit(base: str, bits: str) -> Row:
    parts = {f"{moment}.{part}": kind
             for moment in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
             for part, kind in _MOMENT_PARTS[bits].items()}  # fmt: skip
    marks = {"Fp8": "codes", "8bit": "qmap", "4bit": "_shape"}
    return Row(
        f"torchao.{base}{bits}", {**_MOMENTS, **_MAX, **parts}, _set("step"), _ADAM | {"amsgrad"},
        when={"max_exp_avg_sq": "amsgrad"}, marks=_set(f"exp_avg.{marks[bits]}"),
    )  # fmt: skip


OTHERS: Final = (
    Row("transformers.Adafactor",
        {**_STEP, "exp_avg_sq_row": Kind.ROWS, "exp_avg_sq_col": Kind.COLUMNS, "exp_avg_sq": _P, "exp_avg": _P,
         "RMS": _S},
        _set("step", "RMS"),
        _set("eps", "clip_threshold", "decay_rate", "beta1", "scale_parameter", "relative_step", "warmup_init"),
        when={"exp_avg": "beta1"}),
    *(Row(f"bitsandbytes.{name}", _BITSANDBYTES, _set("step"), _BNB_GROUP, lacks=_set("betas[2]"))
      for name in ("Adam", "AdamW")),
    Row("bitsandbytes.AdEMAMix",
        {key: Kind.STACKED if key.endswith("state1") else kind for key, kind in _BITSANDBYTES.items()},
        _set("step"), _BNB_GROUP | {"betas[2]"}),
    *(_low_bit(base, bits) for base in ("Adam", "AdamW") for bits in _MOMENT_PARTS),
    Row("apex.FusedAdam", {"exp_avg": _P, "exp_avg_sq": _P}, _set("exp_avg", "exp_avg_sq"),
        _ADAM | {"bias_correction", "step"}, group_counter="step"),
)  # fmt: skip

OPTIMIZERS: Final = (*TORCH, *OTHERS)
