"""The command line: options in, verb, render, exit. The only user of click."""
