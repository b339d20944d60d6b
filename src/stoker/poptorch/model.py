"""`trainingModel` and `inferenceModel`: a torch model that takes a whole step's batch at once.

    C rows ─► D × G × R/g micro-batches ─► model, one micro-batch at a time ─► results by output mode
                                             └─ training: an update of the weights after each G × R of them

The model stays where it is: on its own torch device, with its own weights, which are the ones trained. Replicas run one
after another on that device, and what comes out is what R copies with joined gradients would give. Inputs are copied to
the device in one go, results come back to the CPU.

Gradients of an update's G × R micro-batches are averaged, or added up with `ReductionType.Sum`. The loss is the last
single number among the model's results that has a gradient.

With `enableSyntheticData(True)` the inputs that are passed only give shapes: numbers are drawn once on the device
(normal; zeros for whole numbers, which are often labels), and nothing is copied either way. What such a model reaches
is what it could do if data cost nothing.
"""

from __future__ import annotations

from typing import Any

import torch

from stoker.plan import BatchPlan
from stoker.poptorch.enums import ConnectionType, OutputMode, ReductionType
from stoker.poptorch.errors import Error, Misuse
from stoker.poptorch.options import Options
from stoker.poptorch.structures import tensors_of, with_tensors
from stoker.training import Every, Outputs, Returns


class PoplarExecutor:
    """A model that is called with a step's batch. Whatever it does not have itself is the model's."""

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options | None = None,
        training: bool = False,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        if options is not None and not isinstance(options, Options):
            raise Error(f"options should be a poptorch.Options, but got {type(options).__name__}")
        if options is not None:
            options.freeze()
        self._model, self._training = model, training
        self._options = options.clone() if options is not None else Options()
        if self._options.defaultOutputMode():
            self._options.outputMode(OutputMode.Final if training else OutputMode.All)
        self._options.freeze()
        self._plan = self._options.plan(1)
        if not training:
            _check_inference(self._options)
        self._optimizer = optimizer if optimizer or not training else torch.optim.SGD(model.parameters(), lr=0.01)
        self._made_up: list[torch.Tensor] = []
        self._returns = _returns(self._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step: the arguments are the model's, with the rows of all its micro-batches."""
        if self._options.connection_type == ConnectionType.Never:
            raise Misuse(
                "these options say ConnectionType.Never, so the model is not to be run. Leave out connectionType and "
                "useOfflineIpuTarget."
            )
        given = (args, kwargs)
        inputs = [_Rows(tensor, self._plan) for tensor in self._inputs(tensors_of(given))]
        outputs, structure = Outputs(self._returns, self._plan), None
        for iteration in range(self._plan.device_iterations):
            for accumulation in range(self._plan.gradient_accumulation):
                for replica in range(self._plan.replicas):
                    micro = [rows.micro_batch(iteration, accumulation, replica) for rows in inputs]
                    structure = self._run(*with_tensors(given, micro))
                    outputs.add(iteration, replica, tensors_of(structure))
            if self._optimizer is not None:
                self._optimizer.step()
                self._optimizer.zero_grad()
        return with_tensors(structure, [self._outward(tensor) for tensor in outputs.result()])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_model"], name)

    def __repr__(self) -> str:
        return repr(self._model)

    @property
    def model(self) -> torch.nn.Module:
        """The torch model, with the weights as they are now."""
        return self._model

    @property
    def options(self) -> Options:
        """A frozen copy of the options, with the output mode that was chosen."""
        return self._options

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Go on with another optimizer, or with the same one after a change of its rates."""
        self._optimizer = optimizer

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Check the shapes of inputs; there is nothing to compile."""
        for tensor in tensors_of((args, kwargs)):
            _Rows(tensor, self._plan)

    def isCompiled(self) -> bool:
        """Always: a torch model needs no compiler."""
        return True

    def isAttachedToDevice(self) -> bool:
        """Always: the model is where it is."""
        return True

    def attachToDevice(self) -> None:
        """The model is where it is."""

    def detachFromDevice(self) -> None:
        """The model is where it is."""

    def copyWeightsToHost(self) -> None:
        """The model's weights are the ones that are trained."""

    def copyWeightsToDevice(self) -> None:
        """The model's weights are the ones that are trained."""

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Never needed."""
        return False

    def destroy(self) -> None:
        """Let go of what was made up for synthetic data; the model stays as it is."""
        self._made_up = []

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._training:
            with torch.no_grad():
                return self._model(*args, **kwargs)
        output = self._model(*args, **kwargs)
        loss = _loss_of(output)
        if self._options.Training.accumulation_and_replication_reduction_type == ReductionType.Mean:
            loss = loss / (self._plan.gradient_accumulation * self._plan.replicas)
        loss.backward()  # type: ignore[no-untyped-call]
        return output

    def _inputs(self, given: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that the model reads, on its device."""
        device = next(self._model.parameters(), torch.empty(0)).device
        if not self._options.usesSyntheticData:
            return [tensor.to(device, non_blocking=True) for tensor in given]
        if [(known.shape, known.dtype) for known in self._made_up] != [(new.shape, new.dtype) for new in given]:
            self._made_up = [_made_up(tensor, device) for tensor in given]
        return self._made_up

    def _outward(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._options.usesSyntheticData else tensor.cpu()


def trainingModel(
    model: torch.nn.Module | PoplarExecutor,
    options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """A model that trains on every call; without an optimizer, plain descent at a rate of 0.01."""
    return PoplarExecutor(_bare(model), options, training=True, optimizer=optimizer)


def inferenceModel(model: torch.nn.Module | PoplarExecutor, options: Options | None = None) -> PoplarExecutor:
    """A model that only answers."""
    return PoplarExecutor(_bare(model), options, training=False)


def identity_loss(x: torch.Tensor, reduction: str | int) -> torch.Tensor:
    """Make a loss of any tensor: its "mean" or "sum" (as a number: 1 and 0)."""
    if reduction in ("mean", 1):
        return x.mean()
    if reduction in ("sum", 0):
        return x.sum()
    raise Misuse(f'identity_loss reduces by "mean" or "sum", because a loss is one number, but got {reduction!r}')


class _Rows:
    """One input of a step, cut into micro-batches; a single number is the same for all of them."""

    def __init__(self, tensor: torch.Tensor, plan: BatchPlan) -> None:
        self._tensor, self._plan = tensor, plan
        self._count = 1
        for factor in plan.shape[:3]:
            self._count *= factor
        if tensor.dim() and tensor.shape[0] % self._count:
            raise Misuse(
                f"an input of shape {tuple(tensor.shape)} has {tensor.shape[0]} rows, which is no multiple of "
                f"{self._count} = deviceIterations({plan.device_iterations}) × gradientAccumulation"
                f"({plan.gradient_accumulation}) × replicationFactor({plan.replicas}) / input_group_size"
                f"({plan.input_group_size}). A step takes so many micro-batches: let poptorch.DataLoader make it from "
                "the same options, with drop_last=True, or change one of the factors."
            )

    def micro_batch(self, iteration: int, accumulation: int, replica: int) -> torch.Tensor:
        """The rows that a replica reads; a view."""
        if not self._tensor.dim():
            return self._tensor
        place = iteration * self._plan.gradient_accumulation + accumulation
        place = place * self._plan.groups + self._plan.group_of(replica)
        rows = self._tensor.shape[0] // self._count
        return self._tensor[place * rows : (place + 1) * rows]


def _bare(model: torch.nn.Module | PoplarExecutor) -> torch.nn.Module:
    return model.model if isinstance(model, PoplarExecutor) else model


def _returns(options: Options) -> Returns:
    """The output mode in Stoker's words."""
    mode, period = options.output_mode, options.output_return_period
    if mode != OutputMode.EveryN:
        return {OutputMode.All: "all", OutputMode.Final: "final", OutputMode.Sum: "sum"}[mode]  # type: ignore[return-value]
    if options.device_iterations % period:
        raise Misuse(
            f"OutputMode.EveryN returns the results of every {period}th device iteration, but {period} does not divide "
            f"deviceIterations({options.device_iterations}). Choose a period that does."
        )
    return Every(period)


def _check_inference(options: Options) -> None:
    if options.Training.gradient_accumulation != 1:
        raise Error(
            f"an inference model has no gradients to accumulate, but Training.gradientAccumulation is "
            f"{options.Training.gradient_accumulation}. Leave it at 1, and use deviceIterations to run several "
            "micro-batches a call."
        )


def _loss_of(output: Any) -> torch.Tensor:
    numbers = [tensor for tensor in tensors_of(output) if tensor.numel() == 1 and tensor.requires_grad]
    if not numbers:
        shapes = [tuple(tensor.shape) for tensor in tensors_of(output)]
        raise Error(
            f"a training model must return its loss, a single number with a gradient, but it returned tensors of "
            f"shapes {shapes}. Compute the loss in forward() and return it last; poptorch.identity_loss(x, "
            '"mean") makes one number of any tensor.'
        )
    return numbers[-1]


def _made_up(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    if like.is_floating_point():
        return torch.randn(like.shape, dtype=like.dtype, device=device)
    return torch.zeros(like.shape, dtype=like.dtype, device=device)
