"""What a run stands on: console, storage, CPUs, devices, signals, processes."""
