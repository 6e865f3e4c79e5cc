"""A little of what `load.py` asks for; the nightly run takes it for ten minutes."""

import subprocess
import sys
from pathlib import Path


def test_a_third_of_the_clients_go_away():
    load = Path(__file__).with_name("load.py")
    output = subprocess.run([sys.executable, load, "--seconds", "20"], capture_output=True, text=True, timeout=300)
    print(output.stdout)
    assert output.returncode == 0, output.stdout + output.stderr
