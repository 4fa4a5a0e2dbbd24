"""Settings of the whole test-suite."""

import torch

# Two test processes share two cores; more threads than cores would wait for each other.
torch.set_num_threads(1)
