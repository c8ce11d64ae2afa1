"""The HTTP API and event stream of the service; needs the extra `service`."""
