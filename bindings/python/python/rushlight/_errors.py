"""The exception that every failure of the library raises."""


class Error(RuntimeError):
    """What went wrong, where, what was expected, what came, and what to do about it.

    `str(error)` is the whole text; the attributes hold its parts. `code` is ExecuTorch's number for the condition,
    `code_name` its name. `missing_operators` lists all operators that a program needs and this build lacks.
    """

    def __init__(
        self,
        message,
        code=0,
        code_name="",
        site=None,
        expected=None,
        got=None,
        hint=None,
        missing_operators=(),
    ):
        super().__init__(message)
        self.code = code
        self.code_name = code_name
        self.site = site
        self.expected = expected
        self.got = got
        self.hint = hint
        self.missing_operators = list(missing_operators)
