#!/usr/bin/env python3
"""The peak of live bytes on each device, straight from the bytes of a recording whose ring never
came round. Shares nothing with the reader: usage: peak_of.py FILE"""

import json
import pathlib
import struct
import sys


def peaks(path):
    data = pathlib.Path(path).read_bytes()
    sections = [struct.unpack_from("<IIQQQ", data, 1024 + 32 * i) for i in range(32)]
    offset, used = next((s[2], s[4]) for s in sections if s[0] == 1)
    events = []
    for chunk in range(offset, offset + used, 4096):
        claim, = struct.unpack_from("<Q", data, chunk)
        for i in range(63 if claim else 0):
            seq, time, _, size, _, _, _, kind, memory, device = struct.unpack_from(
                "<QQQQQIIBBB", data, chunk + 64 + 64 * i)
            # Alloc and free, of memory that takes up room on the device.
            if seq == claim * 64 + i + 1 and kind in (1, 2) and memory not in (0, 5, 10):
                events.append((time, seq, device, size if kind == 1 else -size))
    live, most = {}, {}
    for _, _, device, change in sorted(events):
        live[device] = live.get(device, 0) + change
        most[device] = max(most.get(device, 0), live[device])
    return most


if __name__ == "__main__":
    print(json.dumps(peaks(sys.argv[1])))
