from .http_client import (
    Client as Client,
    ServerError as ServerError,
    TookTooLong as TookTooLong,
    Unreachable as Unreachable,
    client as client,
)
