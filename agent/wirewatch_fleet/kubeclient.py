"""Requests to the API server of Kubernetes: the client, good answers as JSON, all failures as one."""

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes_asyncio.client import ApiClient, Configuration
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.config import load_kube_config

from wirewatch.client import HttpReply
from wirewatch.kubernetes.apiserver import ApiEndpoint, Outcome, RequestResult, outcome_of
from wirewatch.kubernetes.condition import shortened

ERRORS = (ApiException, aiohttp.ClientError, TimeoutError, OSError, ValueError)
"""Errors that the library raises for a request."""
PAGE = 250
"""Objects in a page of a list."""
WHOLE = 120.0
"""Most seconds for all pages of a list."""
Document = Mapping[str, Any]
Call = Callable[..., Awaitable[Any]]

# What it would log of a configuration is raised too.
logging.getLogger("kubernetes_asyncio.config").setLevel(logging.CRITICAL)


class RequestFailed(Exception):
    """A request failed; `outcome` says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.detail or outcome.result.value)
        self.outcome = outcome

    @property
    def unanswered(self) -> bool:
        """Return whether the API server may have done it nevertheless."""
        return self.outcome.result in {RequestResult.UNREACHABLE, RequestResult.SERVER_ERROR}


def client_of(where: ApiEndpoint) -> ApiClient:
    """Return a client; the CA is read now, the token for each request.

    Raises:
        OSError: the CA or the token cannot be read.
        ValueError: the CA or the token is invalid.
    """
    token, authority = where.folder / "token", where.folder / "ca.crt"

    def read_token(configuration: Configuration) -> None:
        configuration.api_key["BearerToken"] = f"Bearer {_text(token)}"

    host = f"[{where.host}]" if ":" in where.host else where.host
    settings = Configuration(host=f"https://{host}:{where.port}", ssl_ca_cert=str(authority))
    read_token(settings)
    settings.refresh_api_key_hook = read_token
    # As for the node's condition: CAs of many clusters have no Authority Key Identifier.
    settings.disable_strict_ssl_verification = True
    return ApiClient(settings)


async def client_for(where: ApiEndpoint | None) -> ApiClient:
    """Return a client for an API server; for None, kubectl's server: KUBECONFIG or ~/.kube/config.

    Raises:
        OSError: there is no configuration, or the CA or the token cannot be read.
        ValueError: the CA or the token is invalid.
    """
    if where is not None:
        return client_of(where)
    files = _kubectl_files()
    settings = Configuration()
    try:
        await load_kube_config(files, client_configuration=settings)
    except Exception as error:
        raise ValueError(f"{files}, the configuration of kubectl: {'  '.join(str(error).split())}") from error
    return ApiClient(settings)


def _kubectl_files() -> str:
    files = os.environ.get("KUBECONFIG") or "~/.kube/config"
    if not any(Path(one).expanduser().exists() for one in files.split(os.pathsep) if one):
        raise FileNotFoundError(f"there is no {files}, the configuration of kubectl, and this is no pod")
    return files


def _text(file: Path) -> str:
    return file.read_text("ascii").strip()


async def answered(seconds: float, call: Call, /, *given: Any, **named: Any) -> dict[str, Any]:
    """Return the JSON object of a good answer within so many seconds; RequestFailed where none comes."""
    text = await good_bytes(seconds, call, *given, **named)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise failed(ValueError(f"not JSON: {error}")) from error
    if not isinstance(document, dict):
        raise failed(ValueError("not a JSON object"))
    if document.get("kind") == "Status" and document.get("status") == "Failure":
        raise failed(ValueError(f"a refusal with a good status: {shortened(str(document.get('message')))}"))
    return document


async def pages(seconds: float, call: Call, /, **asked: Any) -> tuple[list[Document], str]:
    """Return a whole list, page by page, each within so many seconds, and its version.

    All pages together may take WHOLE. RequestFailed also where an answer is no list.
    """
    found: list[Document] = []
    more = ""
    try:
        async with asyncio.timeout(WHOLE):
            while True:
                page = await answered(seconds, call, **asked, limit=PAGE, _continue=more)
                items, about = page.get("items") or [], page.get("metadata")
                if "items" not in page or not isinstance(items, list) or not isinstance(about, dict):
                    raise failed(ValueError("not a list"))
                found += items
                more = about.get("continue") or ""
                if not more:
                    return found, about.get("resourceVersion", "")
    except TimeoutError as error:
        raise failed(ValueError(f"a list without an end: {len(found)} so far")) from error


async def good_bytes(seconds: float, call: Call, /, *given: Any, **named: Any) -> bytes:
    """Return a good answer to a call within so many seconds; RequestFailed where there is none."""
    try:
        async with asyncio.timeout(seconds):
            response = await call(*given, **named, _preload_content=False, _request_timeout=seconds)
            async with response:
                text: bytes = await response.read()
    except ERRORS as error:
        raise failed(error) from error
    if response.status >= 300:  # noqa: PLR2004
        headers = {name.lower(): value for name, value in response.headers.items()}
        raise RequestFailed(outcome_of(HttpReply(response.status, headers, text), time.time()))
    return text


def failed(error: Exception) -> RequestFailed:
    """Return a member of ERRORS as the failure of a request."""
    if isinstance(error, ApiException) and error.status:
        text = str(error.body or "").encode()
        return RequestFailed(outcome_of(HttpReply(error.status, {}, text), time.time()))
    told = "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    strange = isinstance(error, ValueError) and not isinstance(error, OSError)
    return RequestFailed(Outcome(RequestResult.STRANGE if strange else RequestResult.UNREACHABLE, told))
