#!/usr/bin/env python3
"""Pair up results of several servers and print their ratios as JSON.

Input, one JSON object a line: {"case": ..., "server": ..., "round": ..., "value": ...}; value is a rate.
For every case the ratio ours/other is taken within each round (what ran side by side), and the median of the
rounds is the result; all rounds are kept, so that their spread can be seen.
"""
import json
import statistics
import sys


def main() -> int:
    ours = sys.argv[1] if len(sys.argv) > 1 else "aqueduct"
    cases: dict[str, dict[str, dict[int, float]]] = {}
    for line in sys.stdin:
        row = json.loads(line)
        by_server = cases.setdefault(row["case"], {})
        by_server.setdefault(row["server"], {})[row["round"]] = row["value"]
    out = {}
    for case, servers in cases.items():
        out[case] = {"values": {name: list(rounds.values()) for name, rounds in servers.items()}}
        for name, rounds in servers.items():
            if name == ours or ours not in servers:
                continue
            both = [r for r in rounds if r in servers[ours] and rounds[r] > 0]
            ratios = [servers[ours][r] / rounds[r] for r in both]
            if ratios:
                out[case][f"{ours}/{name}"] = {
                    "median": round(statistics.median(ratios), 3),
                    "rounds": [round(r, 3) for r in ratios],
                }
    json.dump(out, sys.stdout, indent=1)
    print()
    return 0 if out else 1


if __name__ == "__main__":
    sys.exit(main())
