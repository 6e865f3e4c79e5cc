"""Reports in a terminal and in a notebook."""

from html.parser import HTMLParser

import pytest
import rushlight

torch = pytest.importorskip("torch")


class Cells(HTMLParser):
    """Parses HTML, which must be well-formed: the rows of its tables, and its paragraphs."""

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.lines = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "p":
            self.lines.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        elif self.open and self.open[-1] == "p":
            self.lines[-1] += data


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval()


def same_in_both(report):
    """Checks that a terminal shows all words of the notebook's HTML. Returns its rows."""
    text, page = str(report), Cells(report._repr_html_())
    words = text.split()
    for cell in [*page.lines, *(cell for row in page.rows for cell in row)]:
        for word in cell.split():
            assert word in words, (word, text)
    return page.rows


def test_reports_of_a_compilation(model):
    program = rushlight.export(model, (torch.randn(2, 64),))
    rows = same_in_both(program.report)
    assert ["  aten::relu.out", "1"] in rows
    assert repr(program.report) == str(program.report)
    loaded = rushlight.load(program.buffer, lower="cpu").report
    same_in_both(loaded)
    assert "RushlightCpu" in repr(loaded)
    same_in_both(rushlight.load(program.buffer, lower="off").report)


def test_reports_of_what_backends_left():
    class Sine(torch.nn.Module):
        def forward(self, x, i):
            return torch.sin(x), i + 1

    program = rushlight.export(Sine(), (torch.randn(4), torch.ones(2, dtype=torch.int64)), backend="cpu")
    rows = same_in_both(program.report)
    assert any(row[1].startswith("aten::add") and "RushlightCpu: " in row[2] for row in rows if len(row) == 3), rows


def test_reports_of_a_quantization_and_a_comparison(model):
    x = torch.randn(2, 64)
    exported = torch.export.export(model, (x,))
    program = rushlight.compile(exported, quantize="int8", calibration=[(x,)])
    rows = same_in_both(program.quantization)
    assert rows[0] == ["layer", "results", "weights", "in floats"] and len(rows) == 3
    comparison = rushlight.compare(exported, program, (x,))
    rows = same_in_both(comparison)
    assert [row[0] for row in rows[:2]] == ["output", comparison.outputs[0].name] and rows[2][0] == "result", rows
    assert len(Cells(comparison.rows._repr_html_()).rows) == 1 + len(comparison.rows)


def test_modules_and_methods(model, tmp_path):
    class Named(torch.nn.Module):
        def forward(self, image, *, scale):
            return {"scores": model(image) * scale, "<raw>": image}

    batch = torch.export.Dim("batch", min=1, max=8)
    program = rushlight.export(
        Named(), (torch.randn(2, 64),), {"scale": torch.ones(1)}, dynamic_shapes={"image": {0: batch}, "scale": None}
    )
    file = tmp_path / "named.pte"
    program.save(file)
    module = rushlight.load(file)
    rows = same_in_both(module)
    assert ["input", "image", "float32", "[1..=8, 64]"] in rows, rows
    assert ["output", "scores", "float32"] in [row[:3] for row in rows]
    assert "<raw>" not in module._repr_html_() and "&lt;raw&gt;" in module._repr_html_()
    assert same_in_both(module.meta()) == rows
    assert repr(module) == f"rushlight.Module({str(file)!r}, methods=['forward'])"
    assert repr(rushlight.load(program.buffer)) == "rushlight.Module(methods=['forward'])"
    assert str(program.report) in str(program)


def test_what_runs_where_is_logged(model, tmp_path, caplog):
    file = tmp_path / "logged.pte"
    with caplog.at_level("INFO", logger="rushlight"):
        rushlight.export(model, (torch.randn(2, 64),), backend="cpu").save(file)
        module = rushlight.load(file, lower="off")
        module(torch.randn(2, 64))
        module(torch.randn(2, 64))
    compiled, loaded = [record.getMessage() for record in caplog.records if record.name == "rushlight"]
    assert "rushlight.Program(methods=['forward']): " in compiled and "RushlightCpu: " in compiled, compiled
    assert repr(module) in loaded and "runs as its file has it" in loaded, loaded
