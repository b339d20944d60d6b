"""`torch.compile` around a function that loops over a loader: the loader is left alone, the rest is compiled."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import pytest
import torch
from tests.datasets import Made, SizedNumbers, number
from tests.plain import painting

import stoker
from stoker import BatchPlan, Workers

pytestmark = pytest.mark.filterwarnings("error")
BACKENDS = ["eager", "aot_eager"]
HOW: dict[str, dict[str, Any]] = {
    "inline": {},
    "shuffled": {"shuffle": True},
    "seeded": {"shuffle": True, "seed": 3},
    "threads": {"workers": Workers(lanes=2)},
    "forked": {"workers": Workers(1, start_method="fork")},
    "persistent": {"workers": Workers(1, start_method="fork"), "persistent_workers": True},
    "spawned": {"workers": Workers(1, start_method="spawn")},
    "on a device": {"device": "cpu", "workers": Workers(1, start_method="fork")},
    "skipping": {"on_error": "skip"},
    "reseeding": {"reseed": "sample", "seed": 3},
}
TOTAL = sum(range(12)) * 3 * 64 * 64


@pytest.fixture(scope="module", autouse=True)
def tqdm_started() -> None:
    """The compiler shows its progress with tqdm, which then keeps a thread and a lock for the rest of the program."""
    tqdm = pytest.importorskip("tqdm")
    tqdm.tqdm(total=1, file=io.StringIO()).close()


@pytest.fixture(autouse=True)
def forgets_what_was_compiled() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def loader_of(how: str) -> Any:
    return stoker.DataLoader(Made(12, painting), 4, **HOW[how])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", HOW)
def test_a_loop_inside_the_compiled_function_sees_every_batch(how: str, backend: str) -> None:
    loader, steps = loader_of(how), []

    @torch.compile(backend=backend)
    def epoch(batches: Any) -> Any:
        total = torch.zeros(())
        for batch in batches:
            total = total + batch.sum()
            steps.append(len(batch))
        return total

    for _ in range(2):
        assert epoch(loader).item() == TOTAL
    assert steps == [4] * 6


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_step_from_an_iterator_is_compiled_like_torchs(backend: str) -> None:
    @torch.compile(backend=backend)
    def step(batches: Any) -> Any:
        return (next(batches) + 1).sum()

    for kind in (torch.utils.data.DataLoader, stoker.DataLoader):
        batches = iter(kind(Made(12, number), 4))
        assert [int(step(batches)) for _ in range(3)] == [10, 26, 42]
        with pytest.raises(StopIteration):
            step(batches)


def test_a_loader_is_made_sized_and_asked_inside_a_compiled_function() -> None:
    @torch.compile(backend="eager")
    def train() -> Any:
        loader = stoker.DataLoader(Made(12, number), 4, shuffle=True, seed=1)
        loader.set_epoch(1)
        total = torch.zeros(())
        for step, batch in enumerate(loader):
            total = total + batch.sum()
            if step == 1:
                state = loader.state_dict()
        return total, len(loader), state["batches"], loader.stats().steps

    assert train() == (66, 3, 2, 3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_plans_iterables_and_wrappers_can_be_looped_over(backend: str) -> None:
    @torch.compile(backend=backend)
    def total(batches: Any) -> Any:
        found = torch.zeros(())
        for batch in batches:
            found = found + (batch.data if hasattr(batch, "data") and not torch.is_tensor(batch) else batch).sum()
        return found

    plan = BatchPlan(2, replicas=2)
    assert total(stoker.DataLoader(Made(12, number), plan=plan)).item() == 66
    assert total(stoker.DataLoader(SizedNumbers(12), 4)).item() == 66
    assert total(stoker.to_device(torch.utils.data.DataLoader(Made(12, number), 4), "cpu")).item() == 66
    for by in ("thread", "process"):
        with stoker.prefetch(stoker.DataLoader(Made(12, number), 4), by=by) as ahead:
            assert total(ahead).item() == 66


def test_the_model_around_the_loader_is_still_compiled() -> None:
    graphs = []

    def count(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    def step(batch: Any) -> Any:
        return (batch * 2).sum()

    @torch.compile(backend=count)
    def epoch(batches: Any) -> None:
        for batch in batches:
            step(batch)

    found = []
    for kind in (torch.utils.data.DataLoader, stoker.DataLoader):
        torch._dynamo.reset()
        graphs.clear()
        epoch(kind(Made(12, number), 4))
        found.append(len(graphs))
    assert found[0] == found[1] > 0


def doubled(value: int) -> torch.Tensor:
    return torch.full((2,), float(value)) * 2


def test_a_dataset_may_compile_what_it_likes() -> None:
    graphs = []

    def count(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    inner = torch.compile(doubled, backend=count)

    @torch.compile(backend="eager")
    def epoch(batches: Any) -> Any:
        total = torch.zeros(())
        for batch in batches:
            total = total + batch.sum()
        return total

    assert epoch(stoker.DataLoader(Made(4, inner), 2)).item() == 24
    assert graphs


def test_nobody_imports_dynamo_who_does_not_compile() -> None:
    program = (
        "import sys, stoker\n"
        "list(stoker.DataLoader(range(8), 2, num_workers=1)), list(stoker.DataLoader(range(8), 2, device='cpu'))\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_with_an_older_torch_a_wrapper_does_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker.loader import dynamo

    monkeypatch.setattr(dynamo, "_leave_code_alone", lambda function: False)
    seen = []

    class Counter:
        def count(self) -> int:
            seen.append(torch._C._dynamo.eval_frame.get_eval_frame_callback())
            return inside()

    def inside() -> int:
        return len(seen)

    dynamo.hide(Counter, "count")
    counter = Counter()

    @torch.compile(backend="eager")
    def run(x: Any) -> Any:
        return x + counter.count()

    assert run(torch.ones(())).item() == 2
    assert seen == [None]
