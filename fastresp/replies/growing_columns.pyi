from .arrow_out import StringColumn

def string_column(
    values: list[bytes], *, head: int = 0, tail: int = 0, text: bool = True
) -> StringColumn: ...
