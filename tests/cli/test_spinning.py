import subprocess
import sys

import pytest

from chainrule._app.cli.main import BOUNDED, bound_spinning


def test_waiting_threads_sleep_soon_where_the_user_says_nothing():
    environment = {"HOME": "/"}
    bound_spinning(environment)
    assert environment == {"HOME": "/", **BOUNDED}


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_the_users_way_of_waiting_is_left_alone(name):
    environment = {name: "7"}
    bound_spinning(environment)
    assert environment == {name: "7"}


def test_the_command_line_bounds_it_before_torch_is_there():
    code = (
        "import os, sys; from chainrule._app.cli.main import main; main(['--version']);"
        "print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env={})
    assert answer.stdout.splitlines()[-1] == f"{BOUNDED['GOMP_SPINCOUNT']} False"
