"""A WSGI application that knows nothing of the agent but for telling what is recorded of its own request."""

import json
import os
import sys
import time

import flask


def recorded():
    state = sys.modules.get("stilltrue.instrumentation")
    agent = None if state is None else state._STATE.agent
    if agent is None:
        return {"joined": False}
    (served,) = agent.live.recorder.calls_served.values()
    left = None if served.deadline is None else served.deadline - time.time()
    return {"joined": True, "service": agent.settings.service, "left": left, "method": served.method, "pid": os.getpid()}


def make_flask():
    app = flask.Flask("site")
    app.add_url_rule("/one/<int:n>", "one", lambda n: recorded())
    return app


def bare(environ, start_response):
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(recorded()).encode()]
