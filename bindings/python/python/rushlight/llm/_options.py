"""The options of answers in signatures."""

import inspect

# The options with their defaults. The native library checks them.
OPTIONS = {
    # Generated from the table of options by `UPDATE_DOCS=1 cargo test -p rushlight-cli --test it bindings`.
    "max_new_tokens": None,
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "typical_p": 1,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "dry_multiplier": 0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": None,
    "dry_sequence_breaker": None,
    "mirostat": 0,
    "mirostat_tau": 5,
    "mirostat_eta": 0.1,
    "executorch_sampler": False,
    "logit_bias": None,
    "seed": 0,
    "stop": None,
    "ignore_eos": False,
    "logprobs": None,
    "json_schema": None,
    "regex": None,
    "grammar": None,
    "speculate": None,
    "draft_max": 8,
    # End of the generated options.
}


def with_options(function):
    """Shows the options in the signature of a function that takes them as keywords, for `help` and for completion."""
    signature = inspect.signature(function)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind != parameter.VAR_KEYWORD]
    options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in OPTIONS.items()]
    function.__signature__ = signature.replace(parameters=[*own, *options])
    return function
