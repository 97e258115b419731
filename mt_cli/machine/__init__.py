"""Services of the machine for a run: console, storage, CPUs, devices, signals, processes, and the hub."""
