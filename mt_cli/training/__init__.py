"""The steps of training: objective, optimizer, gradients, averages."""
