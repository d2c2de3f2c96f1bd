"""The hw backend: runs a plan on GPUs."""
