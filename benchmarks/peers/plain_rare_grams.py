"""Find odd lines of a log as one would in an afternoon: numbers and addresses masked, lines ranked by
their rarest 5-grams.

plain_rare_grams.py LOG [--top 12]
"""

import argparse
import collections
import re
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("log")
parser.add_argument("--top", type=int, default=12)
args = parser.parse_args()
lines = Path(args.log).read_text(encoding="utf-8", errors="replace").split("\n")
masked = [re.sub(r"\d+\.\d+\.\d+\.\d+", "<address>", line) for line in lines]
masked = [re.sub(r"\[[^\]]*\]|\d{4}-\d\d-\d\d[T ][\d:.]+", "<time>", line) for line in masked]
masked = [re.sub(r"\d{4,}", "<number>", line) for line in masked]
grams = [{line[i : i + 5] for i in range(len(line) - 4)} for line in masked]
seen = collections.Counter(gram for row in grams for gram in row)
rare = [sum(seen[gram] <= 2 for gram in row) for row in grams]
for n in sorted(range(len(lines)), key=lambda n: -rare[n])[: args.top]:
    print(f"{n + 1}\t{rare[n]}\t{lines[n][:160]}")
