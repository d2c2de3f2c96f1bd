"""Traces: timelines out to viewers."""
