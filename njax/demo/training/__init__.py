"""Training of the demo model: `python -m njax.demo.train` (needs the extra `train`: optax).

    recipe.py       the model's configuration and everything a run can be told
    vocabulary.py   the tokenizer, learned from generated text
    stream.py       batches from worker processes, in order
    forward.py      the decoder over packed whole sequences, differentiable
    delta_rule.py attention.py   its two mixers
    fake_quant.py   NVFP4 rounding with a straight-through gradient
    loss.py         next-token and multi-token losses, exactness by conversation
    optimizer.py    Muon for matrices, AdamW for the rest; learning rate by step
    programs.py     the compiled steps and predictions
    state.py        what a run saves and resumes from
    loop.py         the run
    evaluate.py score.py   scores by category: teacher-forced, and by generating in the engine
    curves.py       losses and scores as JSON and PNG
    export.py       an njax checkpoint of the result

The parameters have the names of `njax.models.params` (`mtp.*` for the multi-token layer).
"""
