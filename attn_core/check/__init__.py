"""Checks of attention layers, and broken layers to try them on."""
