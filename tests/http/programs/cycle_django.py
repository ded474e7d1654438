"""The same as a Django site of one file, to be run by `cycle_django.py runserver`."""

from __future__ import annotations

import sys
import threading

import requests
from django.conf import settings
from django.core.management import execute_from_command_line
from django.http import HttpRequest, HttpResponse
from django.urls import path

_lock = threading.Lock()


def _ask(request: HttpRequest) -> HttpResponse:
    seconds = request.GET.get("seconds")
    return HttpResponse(requests.get(request.GET["next"], timeout=None if seconds is None else float(seconds)).text)


def hold(request: HttpRequest) -> HttpResponse:
    with _lock:
        return _ask(request)


def take(_: HttpRequest) -> HttpResponse:
    with _lock:
        return HttpResponse("taken")


urlpatterns = [path("hold", hold), path("pass", _ask), path("take", take)]
settings.configure(SECRET_KEY="secret", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
