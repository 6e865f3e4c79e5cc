"""Several servers of one model on a Ray cluster, or on this machine, behind HAProxy.

    python serve.py model.pte --servers 2 --threads 1 --port 8080

Each server is `rushlight llm serve` in an actor. HAProxy, which runs here, takes out those whose `/health` fails, and their actors
start them again. Servers listen on the addresses of their machines: set RUSHLIGHT_API_KEY, which clients need then, unless you
trust the network.
"""

import argparse
import collections
import os
import pathlib
import re
import signal
import string
import subprocess
import sys
import tempfile
import threading
import time

import ray
from ray.exceptions import RayActorError

CONFIGURATION = string.Template((pathlib.Path(__file__).parent / "haproxy.cfg").read_text())
# Seconds between two looks at the servers.
INTERVAL = 1


@ray.remote(max_restarts=-1)
class Server:
    """A process of `rushlight llm serve`."""

    def __init__(self, command):
        self.command = command
        self.process = self.listens = None

    def address(self):
        """Where it listens. Starts it if it does not run."""
        if self.process is None or self.process.poll() is not None:
            place = ["--host", ray.util.get_node_ip_address(), "--port", "0"]
            self.process = subprocess.Popen([*self.command, *place], stderr=subprocess.PIPE, text=True)
            first = self.process.stderr.readline()
            found = re.search(r"http://(\S+:\d+)", first)
            if not found:
                raise RuntimeError(f"the server did not start: {first}{self.process.stderr.read()}")
            self.listens = found[1]
            # A pipe that nobody reads would fill.
            threading.Thread(target=collections.deque, args=(self.process.stderr, 0), daemon=True).start()
        return self.listens

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Balancer:
    """HAProxy, with the servers that it knows."""

    def __init__(self, address, folder):
        self.address, self.file = address, pathlib.Path(folder) / "haproxy.cfg"
        self.process, self.servers = None, []

    def update(self, servers):
        """Starts it, or has it read its configuration again: answers that are being written end as they were."""
        if servers == self.servers:
            return
        self.servers = servers
        lines = [f"    server server{index} {server}" for index, server in enumerate(servers)]
        self.file.write_text(CONFIGURATION.substitute(address=self.address, servers="\n".join(lines)))
        if self.process is None:
            self.process = subprocess.Popen(["haproxy", "-W", "-q", "-f", str(self.file)])
        else:
            self.process.send_signal(signal.SIGUSR2)
        print(f"{self.address} has {', '.join(servers)}", flush=True)

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


def started(server):
    """The address of a server, or None while its machine or its actor is being replaced."""
    try:
        return ray.get(server.address.remote())
    except RayActorError:
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the .pte file, at the same path on all machines")
    parser.add_argument("--rushlight", default="rushlight", help="the command, on all machines")
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="threads of each, which is how many CPUs Ray counts for it")
    parser.add_argument("--sessions", type=int, default=4, help="answers that a server writes at a time")
    parser.add_argument("--host", default="127.0.0.1", help="where the balancer listens")
    parser.add_argument("--port", type=int, default=8080)
    arguments = parser.parse_args()
    ray.init(log_to_driver=False)
    key = os.environ.get("RUSHLIGHT_API_KEY")
    options = {
        "num_cpus": arguments.threads,
        # On as many machines as there are.
        "scheduling_strategy": "SPREAD",
        "runtime_env": {"env_vars": {"RUSHLIGHT_API_KEY": key}} if key else None,
    }
    command = [arguments.rushlight, "llm", "serve", os.path.abspath(arguments.model)]
    command += ["--threads", str(arguments.threads), "--sessions", str(arguments.sessions)]
    servers = [Server.options(**options).remote(command) for _ in range(arguments.servers)]
    # As Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with tempfile.TemporaryDirectory() as folder:
        balancer = Balancer(f"{arguments.host}:{arguments.port}", folder)
        try:
            while balancer.process is None or balancer.process.poll() is None:
                balancer.update([address for address in map(started, servers) if address])
                time.sleep(INTERVAL)
            sys.exit("HAProxy has ended")
        except KeyboardInterrupt:
            pass
        finally:
            balancer.stop()
            ray.get([server.stop.remote() for server in servers])


if __name__ == "__main__":
    main()
