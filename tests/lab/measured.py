"""What was measured of torch 2.13 by hand, before there was a lab: a table typed in, with nothing of the lab in it."""

NOTHING = ""
MOVED = {
    # optimizer, variant: state that none moves; zero: value, state; counter; zero at learning rate 0: value, state
    ("SGD", ""): (False, NOTHING, None, False, NOTHING),
    ("SGD", "decay"): (True, NOTHING, None, False, NOTHING),
    ("SGD", "momentum"): (True, "momentum_buffer", None, False, "momentum_buffer"),
    ("SGD", "momentum, decay"): (True, "momentum_buffer", None, False, "momentum_buffer"),
    ("SGD", "nesterov"): (True, "momentum_buffer", None, False, "momentum_buffer"),
    ("SGD", "dampening"): (True, "momentum_buffer", None, False, "momentum_buffer"),
    ("Adam", ""): (True, "step,exp_avg,exp_avg_sq", True, False, "step,exp_avg,exp_avg_sq"),
    ("Adam", "decay"): (True, "step,exp_avg,exp_avg_sq", True, False, "step,exp_avg,exp_avg_sq"),
    ("Adam", "amsgrad"): (True, "step,exp_avg,exp_avg_sq", True, False, "step,exp_avg,exp_avg_sq"),
    ("AdamW", ""): (True, "step,exp_avg,exp_avg_sq", True, False, "step,exp_avg,exp_avg_sq"),
    ("AdamW", "no decay"): (True, "step,exp_avg,exp_avg_sq", True, False, "step,exp_avg,exp_avg_sq"),
    ("Adamax", ""): (True, "step,exp_avg,exp_inf", True, False, "step,exp_avg,exp_inf"),
    ("NAdam", ""): (True, "step,mu_product,exp_avg,exp_avg_sq", True, False, "step,mu_product,exp_avg,exp_avg_sq"),
    ("RAdam", ""): (True, "step,exp_avg,exp_avg_sq", True, False, "step,exp_avg,exp_avg_sq"),
    ("Adagrad", ""): (False, "step", True, False, "step"),
    ("Adagrad", "decay"): (True, "step,sum", True, False, "step,sum"),
    ("Adadelta", ""): (False, "step,square_avg,acc_delta", True, False, "step,square_avg,acc_delta"),
    ("RMSprop", ""): (False, "step,square_avg", True, False, "step,square_avg"),
    ("RMSprop", "momentum"): (True, "step,square_avg,momentum_buffer", True, False,
                              "step,square_avg,momentum_buffer"),
    ("RMSprop", "centered"): (False, "step,square_avg,grad_avg", True, False, "step,square_avg,grad_avg"),
    ("Rprop", ""): (False, "step,prev", True, False, "step,prev"),
    ("ASGD", ""): (True, "step,eta,ax", True, True, "step,eta,ax"),
    ("Adafactor", ""): (False, "step,row_var,col_var", True, False, "step,row_var,col_var"),
    ("SparseAdam", ""): (False, "step", True, False, "step"),
    ("Muon", ""): (True, "momentum_buffer", None, False, "momentum_buffer"),
    ("Muon", "no decay"): (True, "momentum_buffer", None, False, "momentum_buffer"),
}  # fmt: skip
"""Of all of these a gradient that is none moves nothing."""
OF_LBFGS = "func_evals,n_iter,d,old_dirs,old_stps,ro,H_diag,prev_flat_grad,al"
"""LBFGS moves these and the value for none and for zeros alike; at learning rate 0 `t` too, and not the value."""

BITWISE_FOREACH = {
    "SGD", "Adam", "AdamW", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop",
}  # fmt: skip
"""Their foreach implementation has the bits of the loop."""
NOT_BITWISE_FOREACH = {"NAdam", "RAdam", "ASGD", "Adafactor"}
FUSED = {"SGD", "Adam", "AdamW", "Adagrad"}

FROZEN = {
    # optimizer: value and state with a stale gradient; with a zeroed one; in a group with learning rate 0
    "SGD": (True, False, False, False, False, False),
    "Adam": (True, True, True, True, False, True),
    "AdamW": (True, True, True, True, False, True),
    "RMSprop": (True, True, False, True, False, True),
    "Adagrad": (True, True, False, True, False, True),
    "NAdam": (True, True, True, True, False, True),
    "Adamax": (True, True, True, True, False, True),
}
