"""Pictures, tables and pages that show what a model and a run are like."""
