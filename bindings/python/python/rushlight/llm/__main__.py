"""`python -m rushlight.llm`: exports a decoder."""

from . import main

main()
