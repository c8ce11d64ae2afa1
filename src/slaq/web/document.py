"""The OpenAPI document; `python -m slaq.web.document` writes it without a service."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from slaq import __version__
from slaq.web import responses
from slaq.web.connections import Places


def openapi_of(app: FastAPI) -> Mapping[str, Any]:
    """Return the OpenAPI document of the application."""
    if app.openapi_schema is None:
        document = get_openapi(
            title="slaq",
            version=__version__,
            summary="A service that gives cores to the training jobs whose loss will fall the most.",
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        components = document.setdefault("components", {})
        for kind, described in responses.components().items():
            components.setdefault(kind, {}).update(described)
        components["securitySchemes"] = {
            "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token over TCP. On the Unix socket the kernel says who asks.",
            }
        }
        document["security"] = [{"token": []}]
        app.openapi_schema = document
    return app.openapi_schema


def written() -> str:
    """Return the document as text; no service has to run."""
    from slaq.config.service import ServiceSettings
    from slaq.service.service import Service
    from slaq.web.app import make_app

    nowhere = Path("/nowhere")
    settings = ServiceSettings(home=nowhere, listen=nowhere / "slaq.sock")
    gate = make_app(object.__new__(Service), settings, Places(1, lambda: 1))
    assert isinstance(gate.app, FastAPI)
    return json.dumps(openapi_of(gate.app), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(written())
