"""Bounds the size and time of Route 53's answers before they are held in memory. Put by `client.py` in front of the HTTP session of boto3.

botocore reads an answer whole before any of its hooks is called, and its settings bound only each wait. So the session that it sends with is
wrapped: it asks for the stream, which botocore never expands, and reads it piece by piece.
"""

from collections.abc import Callable, Iterator
from typing import Any

import botocore.exceptions as aws
import urllib3.exceptions
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from manifests.values.desired import SECOND

MAX_ANSWER = 64 * 1024 * 1024
"""Octets of one answer. A page has 300 record sets of at most 32,000 characters of values each, which is about 10 MB."""

WHOLE = 5
"""A whole answer may take this many times the time-out of one wait."""

PIECE = 64 * 1024


class BoundedSession:
    """A session of botocore (`URLLib3Session`) whose answers are bounded.

    Args:
        session: the session that sends.
        timeout: longest wait for one piece of an answer, in ns.
        steady: steady clock in ns.
    """

    def __init__(self, session: Any, timeout: int, steady: Callable[[], int]) -> None:
        self._session = session
        self._timeout = timeout
        self._steady = steady

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """Send a request, and read its answer whole.

        Raises:
            HTTPClientError: as botocore's session, and when the answer is too long, compressed or not complete in time.
        """
        end = self._steady() + WHOLE * self._timeout
        request.stream_output = True
        response = self._session.send(request)
        try:
            body = self._read(response, request.url, end)
        except BaseException:
            response.raw.close()  # the rest of the answer must not be read as the next one
            raise
        return AWSResponse(response.url, response.status_code, response.headers, _Body(body))

    def close(self) -> None:
        """Close connections."""
        self._session.close()

    def _read(self, response: Any, url: str, end: int) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise aws.HTTPClientError(error="its answer is compressed, which was not asked for")
        body = bytearray()
        while piece := self._next(response.raw):
            body += piece
            if len(body) > MAX_ANSWER:
                raise aws.HTTPClientError(error=f"its answer has more than {MAX_ANSWER} octets")
            if self._steady() > end:
                seconds = WHOLE * self._timeout / SECOND
                raise aws.ReadTimeoutError(endpoint_url=url, error=f"its answer was not complete after {seconds:g} s")
        return bytes(body)

    @staticmethod
    def _next(raw: Any) -> bytes:
        """What has arrived, at most a piece; empty at the end. `read` and `stream` would wait for a whole piece."""
        try:
            return raw.read1(PIECE, decode_content=False) or b""
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise aws.HTTPClientError(error=error) from error


class _Body:
    """What botocore reads of an answer."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        """The whole body."""
        yield self._body
