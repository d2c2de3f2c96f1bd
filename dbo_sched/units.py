"""Numbers for people: inside, times are integer nanoseconds and shares parts of 1."""


def unit_for(ns: int) -> tuple[int, str]:
    """Nanoseconds per unit, and its name, for the unit that keeps numbers up to ``ns`` short."""
    if ns >= 10_000_000:
        return 1_000_000, "ms"
    return (1_000, "us") if ns >= 10_000 else (1, "ns")


def ms(ns: float) -> str:
    """Milliseconds with microseconds."""
    return f"{ns / 1e6:,.3f}"


def us(ns: float | None) -> str:
    """Microseconds with one decimal."""
    return "-" if ns is None else f"{ns / 1e3:,.1f}"


def percent(value: float | None) -> str:
    """A share in percent, or a dash where there is none."""
    return "-" if value is None else f"{value:.1f} %"


def change(part: float) -> str:
    """By which part something changes, in percent with its sign; what rounds to 0 has none."""
    text = f"{100 * part:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text
