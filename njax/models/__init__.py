"""The hybrid decoder as Flax NNX modules: parameters and maths, no state, no devices.

Conventions, each as in the family's reference implementation:
- decoder norms (input, post, final, query, key) are zero-centred: the scale is 1 + weight;
- the gated norm of the delta layers is not: the scale is its weight, applied before the gate;
- one projection gives query and gate of attention, laid out per head as [query | gate]; the gate is
  neither normed nor rotated;
- rotary embedding turns the first `rotary_dim` dims of a head by halves; with three position axes
  the frequencies interleave (temporal, height, width, temporal, ...);
- norms, softmax, gates and the recurrent state are float32 whatever the activation dtype;
- a prompt passes in chunks of whole 64-token blocks, decoding passes one token of each lane.

Bits on XLA:CPU: those of a sequence depend on its tokens alone, whatever the chunks of its prompt,
their padding, its lane and pages and the other lanes (tests/models/test_one_answer.py). Two pairs
of paths agree to rounding only: a token that was decoded and the same one prefilled, and decoding
at two different numbers of lanes (the sums of the one-token delta rule); a server's number of lanes
is fixed.

`params` names the parameters and builds the module from loaded ones.
"""
