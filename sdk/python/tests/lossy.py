"""A line to a gateway that cuts answers at any byte, now and then."""

import random
import socket
import struct
import threading
from urllib.parse import urlsplit


class LossyLine:
    """Cuts answers by chance, each after up to `most` bytes, and none of one request more than three times in a row. `cuts` counts them."""

    def __init__(self, origin: str, chance: float, most: int, seed: int = 7) -> None:
        self._gateway = (urlsplit(origin).hostname, urlsplit(origin).port)
        self._random, self._chance, self._most = random.Random(seed), chance, most
        self.cuts = 0
        self._in_a_row: dict[bytes, int] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        """Passes one request on, and its answer as far as the line lasts."""
        request = b""
        while b"\r\n\r\n" not in request:
            piece = caller.recv(65536)
            if not piece:
                return
            request += piece
        head, body = request.split(b"\r\n\r\n", 1)
        lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        while len(body) < (int(lengths[0]) if lengths else 0):
            body += caller.recv(65536)
        keys = [line for line in head.split(b"\r\n") if line.lower().startswith((b"idempotency-key:", b"x-gateway-subject:"))]
        request = b"".join([head.split(b"\r\n")[0], *keys])
        may_cut = self._in_a_row.get(request, 0) < 3 and self._random.random() < self._chance
        self._in_a_row[request] = self._in_a_row.get(request, 0) + 1 if may_cut else 0
        left = self._random.randrange(self._most) if may_cut else None
        with socket.create_connection(self._gateway) as line:
            lines = [part for part in head.split(b"\r\n") if not part.lower().startswith(b"connection:")]
            line.sendall(b"\r\n".join([*lines, b"Connection: close"]) + b"\r\n\r\n" + body)
            try:
                while left != 0 and (piece := line.recv(65536 if left is None else left)):
                    caller.sendall(piece)
                    left = None if left is None else left - len(piece)
            except OSError:
                pass
        if left == 0:
            self.cuts += 1
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        caller.close()
