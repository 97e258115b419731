"""What a process stands on: console, files, devices, CUDA graphs, signals, several processes."""
