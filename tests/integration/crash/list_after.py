"""Runs a command and then lists the files below a folder that only this mount namespace sees.

usage: list_after.py FOLDER COMMAND...
"""
import os
import subprocess
import sys
from pathlib import Path

environment = dict(os.environ)
done = subprocess.run(sys.argv[2:], env=environment, check=False, stdout=subprocess.DEVNULL)
for path in sorted(Path(sys.argv[1]).rglob("*")):
    if path.is_file():
        print(path.relative_to(sys.argv[1]))
