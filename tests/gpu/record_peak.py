"""The peak of a recording's device memory, from its events alone: record_peak.py FILE prints bytes."""
import struct
import sys

data = open(sys.argv[1], "rb").read()
sections = {s[0]: s for s in struct.iter_unpack("<IIQQQ", data[1024:1024 + 32 * 32])}
_, _, offset, _, used = sections[1]
events = [e for e in struct.iter_unpack("<QQQQQIIBBBBIIBBH", data[offset:offset + used])
          if e[7] in (1, 2) and e[8] not in (0, 5, 10)]  # neither pinned nor addresses alone
live = peak = 0
for event in sorted(events, key=lambda e: (e[1], e[0])):
    live += event[3] if event[7] == 1 else -event[3]
    peak = max(peak, live)
print(peak)
