"""Units for people: inside, times are integer nanoseconds."""


def unit_for(ns: int) -> tuple[int, str]:
    """Nanoseconds per unit, and its name, for the unit that keeps numbers up to ``ns`` short."""
    if ns >= 10_000_000:
        return 1_000_000, "ms"
    return (1_000, "us") if ns >= 10_000 else (1, "ns")
