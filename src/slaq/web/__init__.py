"""The HTTP API and event stream of the service; needs the extra `service`."""

#: What every route of the API begins with.
PREFIX = "/api/v1"
