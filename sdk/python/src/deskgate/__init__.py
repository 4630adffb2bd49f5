"""The client of Deskgate's API: work for an AI assistant that lives on somebody's own computer.

`Deskgate` is the synchronous client, `AsyncDeskgate` the asynchronous one. `types` has the records of the API, `webhooks` and `receipts`
verify what was signed.
"""

from . import types, webhooks
from ._async import AsyncDeskgate
from ._sync import Deskgate
from .errors import (
    ConfigurationError,
    DeskgateError,
    NoAnswerError,
    ProblemError,
    RunError,
    StreamBrokenError,
    VerificationError,
    WaitTimeoutError,
)

__version__ = "0.1.0"

__all__ = [
    "AsyncDeskgate", "ConfigurationError", "Deskgate", "DeskgateError", "NoAnswerError", "ProblemError", "RunError", "StreamBrokenError",
    "VerificationError", "WaitTimeoutError", "types", "webhooks",
]
