"""Files in which a run is reported: metrics, samples, report and summary."""
