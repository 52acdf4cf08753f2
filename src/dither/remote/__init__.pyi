from .http_client import (
    ServerError as ServerError,
    TookTooLong as TookTooLong,
    Unreachable as Unreachable,
    client as client,
)
