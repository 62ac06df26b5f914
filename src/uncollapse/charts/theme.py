"""Colours by name, light and dark: a mark says `s0` or `bad`, a renderer says which blue or red."""

from __future__ import annotations

__all__ = ["DARK", "LIGHT", "SERIES", "css_colour", "css_variables", "rgb"]

# Told apart with any colour vision, and a contrast of 3 or more on the card.
LIGHT = {
    "card": "#ffffff", "ink": "#1a1f29", "soft": "#596273", "line": "#d5d9e0", "grid": "#e9ebef",
    "good": "#11734b", "warn": "#8a5a00", "bad": "#b3261e",
    "s0": "#0b6cb3", "s1": "#c8500a", "s2": "#0b7f5f", "s3": "#a4468a",
    "s4": "#8a6d00", "s5": "#1f8fa8", "s6": "#7a2f4a", "s7": "#6b7280",
}  # fmt: skip
DARK = {
    "card": "#1b2029", "ink": "#e8ebf0", "soft": "#a5aebd", "line": "#39414f", "grid": "#2a313d",
    "good": "#4fc38f", "warn": "#e6b450", "bad": "#ff8a80",
    "s0": "#5aaef0", "s1": "#ff9256", "s2": "#3fcf9f", "s3": "#e58bc9",
    "s4": "#e0bd3f", "s5": "#62d0e6", "s6": "#d9829f", "s7": "#a3acba",
}  # fmt: skip

SERIES = 8  # colours s0 to s7; what is drawn also differs by dash, marker or label


def css_colour(name: str) -> str:
    """What stands in an SVG: a variable for a name of the theme; `#rrggbb` and `none` as they are.

    >>> css_colour("s0"), css_colour("#112233")
    ('var(--s0)', '#112233')
    """
    return f"var(--{name})" if name in LIGHT else name


def css_variables() -> str:
    """The rules that give each colour its value, light and dark."""
    light, dark = (
        " ".join(f"--{name}: {value};" for name, value in theme.items()) for theme in (LIGHT, DARK)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }} "
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    )


def rgb(name: str, opacity: float = 1.0) -> tuple[int, int, int, int]:
    """Red, green, blue and alpha of a colour in the light theme.

    >>> rgb("s0"), rgb("#ff0000", 0.5)
    ((11, 108, 179, 255), (255, 0, 0, 128))
    """
    value = LIGHT.get(name, name)
    red, green, blue = (int(value[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue, round(255 * opacity)
