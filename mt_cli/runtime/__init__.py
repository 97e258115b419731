"""Services for a process: console, files, devices, CUDA graphs, signals, several processes."""
