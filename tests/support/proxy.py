"""A TCP proxy on loopback that a test can cut, so that the two ends are separated until it is restored."""

import contextlib
import select
import socket
import threading

from coterie.bench.loopback import free_port

HOST = "127.0.0.1"
MOST = 1 << 16  # bytes of one read


class Proxy:
    """Forwards connections to a port, one thread for each."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.lost = threading.Event()
        self._target = target
        self._connections: set[socket.socket] = set()
        self.restore()

    def restore(self) -> None:
        """Listen, and forward everything."""
        self._losing: bytes | None = None
        self._listener = socket.create_server((HOST, self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def lose_responses(self, path: str) -> None:
        """Forward requests and drop all responses; :attr:`lost` is set when a response to this path was dropped."""
        self.lost.clear()
        self._losing = path.encode()

    def cut(self) -> None:
        """End all connections and accept none."""
        for open_socket in (self._listener, *self._connections.copy()):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the listener was shut down
            while True:
                client, _ = listener.accept()
                self._connections.add(client)
                threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        path = b""
        with contextlib.suppress(OSError), client, socket.create_connection((HOST, self._target)) as server:
            while True:
                for source in select.select([client, server], [], [])[0]:
                    if not (data := source.recv(MOST)):
                        return
                    if source is client:
                        path = data.split(b" ", 2)[1] if data.startswith(b"POST ") else path
                        server.sendall(data)
                    elif self._losing is None:
                        client.sendall(data)
                    elif path.endswith(self._losing):
                        self.lost.set()
        self._connections.discard(client)
