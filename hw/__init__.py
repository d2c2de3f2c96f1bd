"""The room for the executor that runs plans on real GPUs; nothing is in it yet."""
