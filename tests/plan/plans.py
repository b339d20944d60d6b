"""Plans for property tests: small enough to look at every row."""

from __future__ import annotations

from hypothesis import strategies as st

from stoker import BatchPlan

SMALL = st.integers(1, 4)


@st.composite
def plans(draw: st.DrawFn, hosts: int | None = 1) -> BatchPlan:
    """Any plan of up to 4 in every factor; None draws the hosts too."""
    groups, size = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return BatchPlan(
        draw(SMALL),
        gradient_accumulation=draw(SMALL),
        replicas=groups * size,
        device_iterations=draw(SMALL),
        hosts=draw(SMALL) if hosts is None else hosts,
        input_group_size=size,
        input_grouping=draw(st.sampled_from(["consecutive", "orthogonal"])),
    )


@st.composite
def factorisations(draw: st.DrawFn, product: int) -> BatchPlan:
    """Any plan, on one host, whose steps have `product` rows."""
    factors, left = [], product
    for _ in range(3):
        divisors = [size for size in range(1, left + 1) if left % size == 0]
        factors.append(draw(st.sampled_from(divisors)))
        left //= factors[-1]
    return BatchPlan(left, gradient_accumulation=factors[0], replicas=factors[1], device_iterations=factors[2])
