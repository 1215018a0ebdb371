"""The numerical operations of hybrid language models, each with one meaning and many engines.

Every folder is one operation: `reference.py` states its semantics in NumPy float64,
`xla.py` is the implementation for any device, `hopper.py` (where present) is a Mosaic GPU kernel
for compute capability 9.0. `dispatch.py` picks the first implementation that accepts a call.
This package depends on JAX alone.
"""
