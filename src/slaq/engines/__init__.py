"""What starts, resizes and stops jobs on real hardware."""
