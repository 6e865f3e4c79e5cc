"""Drop-in modules: the names and behaviour of other runtimes' bindings, on Rushlight."""
