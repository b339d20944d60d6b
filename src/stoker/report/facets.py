"""Which settings share a panel, which of them are one line, and how a line is called and coloured.

A run varies several things at once. In a chart of y over x, a panel is one dataset with one model; within it a line is
everything else that varies, x apart. Each loader has a hue of its own, and its lines differ in lightness, so that
a reader sees first which loader is which, and then the rest.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stoker.bench.groups import Group
from stoker.bench.settings import Setting, varied

# Okabe and Ito's colours, which people with colour-blindness can tell apart, darkened where light ones would vanish.
_HUES = {"torch": "#d55e00", "stoker": "#0072b2", "given": "#009e73", "synthetic": "#8a6fb0"}
_OTHER = "#666666"
_PANEL = ("dataset", "model")


@dataclass(frozen=True)
class Line:
    """One line of a panel: groups that differ in x alone, sorted by x."""

    name: str
    colour: str
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Panel:
    """The lines of one dataset with one model."""

    title: str
    lines: tuple[Line, ...]


def panels(groups: Iterable[Group], x: str) -> list[Panel]:
    """The panels of a chart over `x` ("workers" or "batch_size"); what has no x or was not measured is left out."""
    shown = [group for group in groups if group.records and getattr(group.setting, x) is not None]
    differing = varied([group.setting for group in shown]) - {x, *_PANEL} | {"loader"}
    return [Panel(title, _lines(members, differing, x)) for title, members in by_name(shown, panel_title).items()]


def by_name(groups: Iterable[Group], name: Callable[[Setting], str]) -> dict[str, list[Group]]:
    """The groups under what their settings are called, in the order of first measuring."""
    places: dict[str, list[Group]] = {}
    for group in groups:
        places.setdefault(name(group.setting), []).append(group)
    return places


def panel_title(setting: Setting) -> str:
    """The dataset and the model: 'photos, no model'."""
    return setting.label(_PANEL)


def x_values(groups: Iterable[Group], x: str) -> list[int | str]:
    """All values of x, numbers first, in order."""
    values = {getattr(group.setting, x) for group in groups} - {None}
    return sorted(values, key=_place)


def hue(loader: str) -> str:
    """A loader's colour."""
    return _HUES.get(loader, _OTHER)


def _lines(groups: Sequence[Group], differing: set[str], x: str) -> tuple[Line, ...]:
    members = by_name(groups, lambda setting: setting.label(differing))
    lines = []
    for name, found in members.items():
        same = [other for other, groups_of in members.items() if groups_of[0].setting.loader == found[0].setting.loader]
        colour = _lightened(hue(found[0].setting.loader), same.index(name), len(same))
        lines.append(Line(name, colour, tuple(sorted(found, key=lambda group: _place(getattr(group.setting, x))))))
    return tuple(lines)


def _place(value: int | str) -> tuple[int, int, str]:
    return (1, 0, value) if isinstance(value, str) else (0, value, "")


def _lightened(colour: str, place: int, count: int) -> str:
    """The colour itself for the last of `count`, lighter for those before."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    hue_, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    step = (count - 1 - place) / max(1, count - 1) if count > 1 else 0.0
    parts = colorsys.hls_to_rgb(hue_, light + (0.74 - light) * step, saturation)
    return "#" + "".join(f"{round(part * 255):02x}" for part in parts)
