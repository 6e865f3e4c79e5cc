"""Calls with bound inputs and outputs, calls at the same time, and calls in coroutines."""

import asyncio

from ._arguments import kind_of_arrays, new_array
from ._rushlight import Cancellation


class Binding:
    """A call of a method with fixed inputs and outputs: each run reads the same inputs where they are, and writes the same outputs
    in place. Change the elements of the inputs between runs.

    `inputs` are the leaves of the arguments, in the order of the method; `out` is what a run returns.
    """

    __slots__ = ("_leaves", "_outputs", "_run", "inputs", "out")

    def __init__(self, run, leaves, outputs, out):
        self._run = run
        self._leaves = self.inputs = leaves
        self._outputs = outputs
        self.out = out

    def __call__(self):
        """Runs the method, and returns `out`."""
        self._run(self._leaves, self._outputs)
        return self.out

    def __repr__(self):
        return f"rushlight.Binding(inputs={len(self._leaves)}, outputs={len(self._outputs)})"


class Instances:
    """Copies of a method of a module, each with memory of its own, over the same weights. Any number of threads may call them. A call
    takes a copy that is free, or waits for one. `rushlight.Module.instances` makes them.

    `len(instances)` is the number of calls that run at the same time.
    """

    __slots__ = ("_core", "_method", "_module")

    def __init__(self, module, core, method):
        self._module = module
        self._core = core
        self._method = method

    def __call__(self, /, *inputs, out=None, **named):
        """Runs the method, as a call of the module does. `out` are arrays that the outputs are written to."""
        return self._call(inputs, named, out, None)

    async def call_async(self, /, *inputs, out=None, **named):
        """As a call, in a thread. Cancelling the task ends the call after its current step."""
        return await in_thread(self._call, inputs, named, out)

    def _call(self, inputs, named, out, cancellation):
        call = self._module._prepared(self._method, inputs, named, out)
        return call.run(self._core.call, self._core.call_into, (), cancellation)

    def __len__(self):
        return self._core.count()

    def __repr__(self):
        return f"rushlight.Instances({len(self)} of {self._method!r})"


class Prepared:
    """The arguments of a call in the order of the method's inputs and outputs."""

    __slots__ = ("leaves", "out", "outputs", "signature")

    def __init__(self, signature, leaves, outputs, out):
        self.signature = signature
        self.leaves = leaves
        # None if the call makes new arrays.
        self.outputs = outputs
        self.out = out

    def run(self, run, run_into, method, cancellation):
        """Runs the call with the functions of a core, whose first arguments are `method`. Returns the result in its containers, or
        `out`.
        """
        if self.outputs is not None:
            run_into(*method, self.leaves, self.outputs, cancellation)
            return self.out
        return built(self.signature, run(*method, self.leaves, cancellation))


def built(signature, outputs):
    """Puts the outputs of a call into the containers of the exported function."""
    if signature is not None:
        return signature.build(outputs)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def flat_outputs(signature, out, count):
    """Returns the arrays for the outputs of a method with `count` outputs, in their order."""
    if signature is not None:
        return signature.flatten_outputs(out)
    return list(out) if isinstance(out, (tuple, list)) and count != 1 else [out]


def new_outputs(leaves, infos):
    """Makes arrays for outputs, of the library of the first array among the inputs."""
    kind = kind_of_arrays(leaves)
    for index, info in enumerate(infos):
        if kind is None:
            raise TypeError("a binding makes outputs for inputs of NumPy and PyTorch; give arrays for others as out=")
        if getattr(info, "is_dynamic", True):
            raise ValueError(f"output {index} has no fixed shape; give an array of the shape of this call's result as out=")
    return [new_array(kind, info.sizes, info.dtype) for info in infos]


async def in_thread(call, *arguments):
    """Awaits `call(*arguments, cancellation)` in a thread of `asyncio.to_thread`. A task that is cancelled waits until the call has
    ended, so that its arrays are free again.
    """
    cancellation = Cancellation()
    running = asyncio.ensure_future(asyncio.to_thread(call, *arguments, cancellation))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        cancellation.cancel()
        await asyncio.wait([running])
        if not running.cancelled():
            # Fetched, so that it is not reported as lost.
            running.exception()
        raise
