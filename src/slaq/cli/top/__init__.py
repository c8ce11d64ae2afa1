"""The full screen of `slaq top`."""
