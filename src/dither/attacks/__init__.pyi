from .base import (
    Attack as Attack,
    Outcome as Outcome,
    Published as Published,
    ReleaseKind as ReleaseKind,
    Score as Score,
)
