"""The resume experiment on commands: any script, recorded from outside, stopped, resumed from a copy of its folder."""
