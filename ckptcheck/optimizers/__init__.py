"""What each optimizer keeps: state keys, shapes, dtypes and counters, as one table."""
