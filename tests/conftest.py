"""Settings of the whole test-suite."""

import os

# Without a network, asking the Hub for what it has not takes a minute of trying again; tests bring their own Hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

# Two test processes share two cores; more threads than cores would wait for each other.
torch.set_num_threads(1)
