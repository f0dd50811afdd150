"""Serve a run on a Ray cluster, with more replicas where more requests wait: python examples/serve_ray.py"""

import json
from pathlib import Path
from urllib.request import Request, urlopen

from ray import serve
from sklearn.datasets import load_wine

import chainrule
from chainrule_app.serve import create_app

wine, path = load_wine(as_frame=True).frame, Path("wine").resolve()  # that all machines share, or a URL
chainrule.fit(wine, budget="30s", out=path)


def application():
    """Make the application of `chainrule serve`, in each replica."""
    return create_app({"wine": chainrule.load(path)})


replicas = {"min_replicas": 1, "max_replicas": 4, "target_ongoing_requests": 8}
serve.run(serve.deployment(serve.ingress(application)(), autoscaling_config=replicas).bind())
rows = json.dumps({"data": wine.head(2).to_dict("records")}).encode()
asked = Request("http://127.0.0.1:8000/runs/wine/score", rows, {"Content-Type": "application/json"})
print(json.dumps(json.load(urlopen(asked))["rows"]))
