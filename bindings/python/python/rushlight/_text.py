"""Numbers and tables for people, in terminals and notebooks."""

import html


def count(number, what):
    """`1 node`, `2 nodes`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def size(nbytes):
    """Formats a number of bytes with a suitable unit."""
    number = float(nbytes)
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{nbytes} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} GB"


class Table:
    """Rows of strings, the first of which is the header. Columns whose index is in `right` are aligned to the right."""

    __slots__ = ("right", "rows")

    def __init__(self, rows, right=()):
        self.rows = [tuple(map(str, row)) for row in rows]
        self.right = right

    def __str__(self):
        widths = [max(map(len, column)) for column in zip(*self.rows)]
        lines = []
        for row in self.rows:
            cells = [
                cell.rjust(width) if index in self.right else cell.ljust(width)
                for index, (cell, width) in enumerate(zip(row, widths))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)

    def html(self):
        """The rows as a table of HTML."""
        header, *rows = self.rows
        lines = ["<table>", self._row(header, "th"), *(self._row(row, "td") for row in rows), "</table>"]
        return "\n".join(lines)

    def _row(self, cells, tag):
        def cell(index, text):
            align = "right" if index in self.right else "left"
            return f'<{tag} style="text-align: {align}">{html.escape(text)}</{tag}>'

        return f"<tr>{''.join(cell(index, text) for index, text in enumerate(cells))}</tr>"


def as_text(parts):
    """Formats lines and tables for a terminal."""
    return "\n".join(map(str, parts))


def as_html(parts):
    """Formats lines and tables for a notebook."""
    return "\n".join(
        part.html() if isinstance(part, Table) else f"<p>{html.escape(part)}</p>" for part in parts if part != ""
    )


def printable(cls):
    """Makes a class print its `_parts()`, lines and tables, in terminals and notebooks."""
    cls.__str__ = lambda self: as_text(self._parts())
    cls._repr_html_ = lambda self: as_html(self._parts())
    return cls


def printable_with_repr(cls):
    """Like `printable`, and makes `repr` print them, too."""
    cls = printable(cls)
    cls.__repr__ = cls.__str__
    return cls
