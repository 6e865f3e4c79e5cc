"""Numbers and tables for people."""


def count(number, what):
    """`1 node`, `2 nodes`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def size(nbytes):
    """Bytes in the unit that suits them."""
    number = float(nbytes)
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{nbytes} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


def table(rows, right=()):
    """Rows of strings as lines of columns; those whose index is in `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
