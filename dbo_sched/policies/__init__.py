"""What engines decide before a step runs, as pure functions: each decision with its reason."""
