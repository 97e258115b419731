"""A stand-in for a GPU: PyTorch's `meta` device, whose tensors have no values that could be read."""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OnMeta(TorchDispatchMode):
    """Context manager in which every operation has all its tensors on `meta`, but for asynchronous copies to it.

    Unlike a GPU, `meta` takes tensors without dimension of a CPU, and tensors made of Python's values.
    """

    def __init__(self):
        super().__init__()
        self.num_copies = 0
        self._functions = _NoValuesOfPython()

    def __enter__(self):
        self._functions.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._functions.__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        is_copy = function.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.to)
        if is_copy and args[0].device.type == "cpu":
            assert kwargs["non_blocking"] and result.is_meta
            self.num_copies += 1
        else:
            tensors = [each for each in tree_leaves((args, kwargs, result)) if isinstance(each, torch.Tensor)]
            assert all(each.is_meta for each in tensors), function
        return result


class _NoValuesOfPython(TorchFunctionMode):
    """Tensors of Python's values are made on the CPU and copied, for which a GPU is waited for."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert function not in (torch.tensor, torch.as_tensor, torch.from_numpy, torch.Tensor.new_tensor), function
        return function(*args, **(kwargs or {}))
