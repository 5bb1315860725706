"""Children are timed run by run, and however they end is a result."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.kernel_matmul import keops, matheron, whole_block
from experiments.peer import GIB, Peer, interleave

HERE = "tests.experiments.test_peer"


def ones(size):
    return lambda: torch.ones(size)


def greedy(size):
    print("what libraries print is no answer")
    return lambda: torch.ones(size) + 1.0


def broken():
    raise ImportError("no such peer")


def suicidal():
    return lambda: os.kill(os.getpid(), signal.SIGKILL)


def endless():
    return lambda: time.sleep(60)


def start(name, memory=2 * GIB, timeout=60.0, **arguments):
    return Peer(f"{HERE}:{name}", arguments, memory=memory, timeout=timeout)


def test_rounds_take_one_run_of_each_peer():
    peers = [start("ones", size=4), start("ones", size=9)]
    rounds = interleave(peers, 3)
    for peer in peers:
        peer.close()
    assert [len(round) for round in rounds] == [2, 2, 2]
    assert all(seconds > 0 for round in rounds for seconds in round)
    assert [peer.runs[-1]["norm"] for peer in peers] == [2.0, 3.0]
    assert all(peer.peak >= peer.ready["resident"] > 0 for peer in peers)


def test_a_peer_that_ends_is_recorded_as_it_ended():
    peers = {
        "allocate memory": start("greedy", size=GIB),
        "no such peer": start("broken"),
        "SIGKILL": start("suicidal"),
    }
    for message, peer in peers.items():
        assert math.isnan(peer.run())
        assert message in peer.ended
        assert math.isnan(peer.run())
        peer.close()


def test_a_peer_that_takes_too_long_is_stopped():
    peer = start("endless")
    peer.timeout = 0.2
    assert math.isnan(peer.run())
    assert peer.ended == "stopped after 0.2 s"
    peer.close()


def test_a_peer_leaves_with_its_parent():
    program = f"""
from experiments.peer import Peer
peer = Peer("{HERE}:endless", {{}}, memory={2 * GIB})
peer.process.stdin.write("run\\n")
print(peer.process.pid, flush=True)
peer.run()
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    child = int(parent.stdout.readline())
    assert running(child)
    parent.kill()
    parent.wait()
    for _ in range(50):
        if not running(child):
            return
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child works on")


def running(pid):
    """Not ended, and no zombie that nobody waits for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_peers_compute_the_same_product():
    sizes = {"n": 1500, "d": 3, "columns": 2, "rows": 40}
    torch.testing.assert_close(matheron(**sizes)(), whole_block(**sizes)(), rtol=1e-4, atol=1e-3)


@pytest.mark.slow
def test_keops_computes_the_same_product():
    pytest.importorskip("pykeops")
    sizes = {"n": 1500, "d": 3, "columns": 2, "rows": 40}
    torch.testing.assert_close(matheron(**sizes)(), keops(**sizes)(), rtol=1e-4, atol=1e-3)
