"""Measures what the journal promises about speed, always beside the raw driver and in the same run."""
