"""Counts and durations for Prometheus, in a registry of the application's own."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.serve._state import ServerState


class Metrics:
    """An ASGI application that counts the requests that another answers, and the symbols of its engines.

    Args:
        app: the other.
        state: of the server.
        registry: that its figures go to.
    """

    def __init__(self, app: ASGIApp, state: ServerState, registry: CollectorRegistry):
        self.app, self.state = app, state
        labels = ("method", "route", "status")
        self.requests = Counter("chainrule_requests", "Requests answered.", labels, registry=registry)
        self.seconds = Histogram("chainrule_request_seconds", "Seconds until the end.", labels[:2], registry=registry)
        registry.register(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = perf_counter(), 499  # the client has gone

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            # Of known routes only: the paths that strangers ask for have no end.
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "other"
            self.requests.labels(method, route, status).inc()
            self.seconds.labels(method, route).observe(perf_counter() - began)

    def collect(self) -> Iterator[Any]:
        """Yield the figures of the engines, read when they are asked for."""
        drawn = CounterMetricFamily("chainrule_symbols_drawn", "Symbols drawn.", labels=["run"])
        read = CounterMetricFamily("chainrule_symbols_read", "Symbols of prompts read.", labels=["run"])
        active = GaugeMetricFamily("chainrule_texts_active", "Texts being drawn or waiting.", labels=["run"])
        for name, engine in self.state.engines.items():
            drawn.add_metric([name], engine.drawn)
            read.add_metric([name], engine.read)
            active.add_metric([name], engine.active)
        yield from (drawn, read, active)
        yield GaugeMetricFamily("chainrule_calls_waiting", "Other requests waiting.", value=self.state.waiting)
