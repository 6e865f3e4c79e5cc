"""Making a form of a model for a benchmark, which shows those that cannot be made as missing."""

import time
import traceback


def attempt(name, form, file, make):
    """Calls `make` with the name and the folder of a file. If that fails, `<file>.failed` says why."""
    import torch

    file.parent.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    failed = file.with_name(file.name + ".failed")
    failed.unlink(missing_ok=True)
    try:
        with torch.no_grad():
            make(name, file.parent)
        print(f"{name}: {form} in {time.monotonic() - start:.1f} s", flush=True)
    except Exception as error:
        traceback.print_exc()
        failed.write_text(f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}\n")
