"""A model whose parameters and optimizer states are split over several GPUs."""
