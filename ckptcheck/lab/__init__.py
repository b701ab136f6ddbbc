"""The contract lab: what an optimizer makes of a gradient that is none, zero or not, shown by real steps."""
