"""The faults, one file a family; `tests.catalogue.table` puts them together."""
