"""RAPPOR and Apple's sketch on the same made-up population: which home pages are common, and nobody's is known.

Run it: python examples/browser_statistics.py
"""

import numpy as np

import dither as dp

pages = [f"https://example.org/{rank}" for rank in range(40)]
popularity = 1 / np.arange(1, 41) ** 1.3
people = np.random.default_rng(1).choice(40, size=100_000, p=popularity / popularity.sum())
true = np.bincount(people, minlength=40) / people.size

rappor = dp.local.Rappor(bits=64, hashes=2, cohorts=16, f="1/2")
reports = rappor.aggregator().add(rappor.randomize(people, candidates=pages))
print(f"RAPPOR, ε = {rappor.loss().pure():.2f} for each person, {rappor.width} bytes a report")
for found in reports.decode(pages).found[:5]:
    (low, high), truth = found.share_interval, true[pages.index(found.candidate)]
    print(f"  {found.candidate}  {found.share:6.2%}  [{low:6.2%}, {high:6.2%}]  true {truth:6.2%}")

sketch = dp.local.HadamardSketch.for_epsilon(4)
counted = sketch.aggregator().add(sketch.randomize(np.array(pages)[people]))
shares = counted.estimate(values=pages)
print(f"Hadamard sketch, ε = {sketch.loss().pure():.2f}, {sketch.width} bytes a report")
for place in np.argsort(-shares.values)[:5]:
    low, high = shares.intervals[place]
    print(f"  {pages[place]}  {shares.values[place]:6.2%}  [{low:6.2%}, {high:6.2%}]  true {true[place]:6.2%}")
