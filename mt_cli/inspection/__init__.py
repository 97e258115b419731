"""Pictures, tables and report pages of models and runs."""
