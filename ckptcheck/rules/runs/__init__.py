"""Rules over a resumed run and the one it should reproduce, one file a family."""
