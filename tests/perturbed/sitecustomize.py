"""Gives each training in a notebook another start; `make test-perturbed` puts this folder on the kernel's path.

Another processor adds numbers in another order, and a training then ends with other digits, much as it does from
parameters that differ in their last ones. With ``PERTURB=noise:7``, every optimiser multiplies the parameters that it
is given by 1 + 10⁻⁶ ε first, ε drawn with the seed 7. With ``PERTURB=seed:7``, everything that ``torch.nn.init`` draws
is drawn anew, from that seed and the state of the generator, so that models made alike stay alike; other random
numbers of the page stay what they are.
"""

import functools
import os
import sys
import zlib

kind, _, number = os.environ.get("PERTURB", "").partition(":")

if kind and "ipykernel_launcher" in sys.orig_argv:  # the notebooks' kernels, and no other process
    import torch
    from torch.nn import init

    generator = torch.Generator().manual_seed(int(number))
    if kind == "noise":
        start = torch.optim.Optimizer.__init__

        @functools.wraps(start)
        def start_nearby(self, *args, **options):
            start(self, *args, **options)
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.requires_grad:  # what is frozen must stay what it is
                        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
                        parameter.data *= 1 + 1e-6 * noise

        torch.optim.Optimizer.__init__ = start_nearby
    elif kind == "seed":

        def drawn_anew(draw):
            @functools.wraps(draw)
            def wrapper(*args, **options):
                state = zlib.crc32(torch.get_rng_state().numpy().tobytes())
                draw(*args, **options)  # the page's own random numbers go on as they would
                return draw(*args, **(options | {"generator": generator.manual_seed(state + int(number))}))

            return wrapper

        for name in ("uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
                     "kaiming_normal_", "orthogonal_"):  # fmt: skip
            setattr(init, name, drawn_anew(getattr(init, name)))
    else:
        raise ValueError(f"PERTURB: expected noise:NUMBER or seed:NUMBER, got {kind}")
