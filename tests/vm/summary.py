"""Prints the table and the count of a run of the scenarios, and writes both as JSON.

usage: summary.py results.tsv results.json SERVER LEVEL; exits with 1 when a scenario failed or none ran.
"""

import json
import sys


def main():
    source, target, server, level = sys.argv[1:]
    with open(source, encoding="utf-8", errors="replace") as lines:
        rows = [line.rstrip("\n").split("\t", 4) for line in lines]
    names = ("scenario", "transport", "verdict", "seconds", "reason")
    results = [dict(zip(names, row)) for row in rows]
    for result in results:
        result["seconds"] = float(result["seconds"])
    with open(target, "w", encoding="utf-8") as out:
        json.dump({"server": server, "level": level, "results": results}, out, indent=1)

    print(f"\n{'scenario':20} {'tcp':>16} {'rdma':>16} {'once':>16}    ({server}, {level})")
    for name in dict.fromkeys(result["scenario"] for result in results):
        cells = {r["transport"]: f"{r['verdict']} {r['seconds']:.0f} s" for r in results if r["scenario"] == name}
        print(f"{name:20} " + " ".join(f"{cells.get(t, ''):>16}" for t in ("tcp", "rdma", "once")).rstrip())
    failed = [result for result in results if result["verdict"] == "FAIL"]
    for result in failed:
        print(f"FAIL {result['scenario']} over {result['transport']}: {result['reason']}")
    counts = {verdict: sum(r["verdict"] == verdict for r in results) for verdict in ("PASS", "FAIL", "SKIP")}
    skipped = f", {counts['SKIP']} skipped" if counts["SKIP"] else ""
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed{skipped}")
    sys.exit(1 if failed or not counts["PASS"] else 0)


main()
