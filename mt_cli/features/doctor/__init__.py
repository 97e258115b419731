"""Versions, devices, precision support and disk space of this machine."""
