"""A model whose parameters and optimizer states are spread over several GPUs."""
