from .http_client import (
    HttpClient as HttpClient,
    ServerError as ServerError,
    TookTooLong as TookTooLong,
    Unreachable as Unreachable,
    client as client,
)
