"""Programs that take turns: each is started once and then works a round at a time when told to, so
that rounds of a native process and of processes under the shim interleave, and a slow start (PyTorch
needs ten seconds) is paid once, by all of them at the same time.

The protocol: a line with a number of steps on standard input, one line of JSON on standard output;
the end of the input ends the program. The first line of output, "{}", says that it is ready.
"""

import json
import sys


def serve(work):
    """The program's side: calls work(steps), which gives a dictionary, until the input ends."""
    print("{}", flush=True)
    for line in sys.stdin:
        print(json.dumps(work(int(line))), flush=True)


def answer(child, deadline):
    """The harness's side: the next line of a turn-taking Child; raises TurnError in its place."""
    line = child.read_line(deadline)
    if line is None:
        raise TurnError(f"{child.name}: no answer in time")
    try:
        return json.loads(line)
    except ValueError:
        raise TurnError(f"{child.name}: ended or printed something else: {line[:120]!r}") from None


class TurnError(Exception):
    """A program did not answer as agreed; the message says which."""


def take_turns(children, steps, rounds, deadline):
    """Waits until all are ready, gives one warm-up round to each and then `rounds` rounds, one child
    at a time. Returns {name: [answers of the rounds]} with the warm-up first."""
    for child in children:
        answer(child, deadline)
    answers = {child.name: [] for child in children}
    for index in range(rounds + 1):
        # Every round begins with another child, so that none always follows the same one.
        turn = index % len(children)
        for child in children[turn:] + children[:turn]:
            child.write_line(str(steps))
            answers[child.name].append(answer(child, deadline))
    return answers
