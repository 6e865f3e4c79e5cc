"""A web service that recognizes a handwritten digit.

    python web_service.py ../cortex-m/digits.pte --port 8000
    curl --data-binary @../cortex-m/images/3.png http://127.0.0.1:8000/digit

Needs fastapi, uvicorn, numpy and pillow. Requests are answered by several threads, each with a module of its own: they map the same
file, so that weights are in memory once.
"""

import argparse
import io
import queue

import fastapi
import numpy
import PIL.Image
import rushlight
import uvicorn

LARGEST = 1 << 20


def service(program, modules):
    app = fastapi.FastAPI()
    free = queue.SimpleQueue()
    for _ in range(modules):
        free.put(rushlight.load(program, threads=1, memory_limit=64 << 20, time_limit=5))

    def recognize(body):
        """Runs in a thread of the server's pool, and waits there for a module."""
        try:
            with PIL.Image.open(io.BytesIO(body), formats=["PNG", "JPEG"]) as image:
                pixels = numpy.asarray(image.convert("L").resize((8, 8)), numpy.float32) / 255
        except (OSError, ValueError, PIL.Image.DecompressionBombError) as error:
            raise fastapi.HTTPException(400, f"not an image: {error}") from error
        module = free.get()
        try:
            logits = module(pixels[None, None])[0]
        finally:
            free.put(module)
        return {"digit": int(logits.argmax()), "logits": logits.tolist()}

    @app.post("/digit")
    async def digit(request: fastapi.Request):
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST:
                raise fastapi.HTTPException(413, f"an image may have {LARGEST} bytes")
        return await fastapi.concurrency.run_in_threadpool(recognize, body)

    @app.get("/health")
    async def health():
        return {"status": "ok"}

    return app


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--modules", type=int, default=2, help="how many requests are answered at the same time")
    arguments = parser.parse_args()
    uvicorn.run(service(arguments.program, arguments.modules), host="127.0.0.1", port=arguments.port)


if __name__ == "__main__":
    main()
