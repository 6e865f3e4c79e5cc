"""Classifies the images of a folder on several processes, or machines, with Ray Data.

    python batch_inference.py ../cortex-m/digits.pte ../cortex-m/images predictions --actors 2

Each actor loads the program once: they map the same file. `predictions` gets Parquet files with `path`, `class` and `process`. On a
cluster, the program and the folder are at the same paths on all machines. Needs ray[data], pyarrow, numpy and pillow.
"""

import argparse
import os
import socket

import numpy
import pyarrow.dataset
import ray


class Classifier:
    """An actor with a module of its own."""

    def __init__(self, program, threads):
        # Where the actor is, which may be another machine.
        import rushlight

        self.module = rushlight.load(program, threads=threads)
        self.shape = self.module.meta().inputs[0].sizes

    def __call__(self, batch):
        # Programs with a fixed batch take one image at a time.
        _, channels, height, width = self.shape
        classes = []
        for image in batch["image"]:
            pixels = numpy.asarray(image, numpy.float32) / 255
            pixels = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
            if pixels.shape != (channels, height, width):
                raise ValueError(f"expected images of {channels} x {height} x {width}, got {pixels.shape}")
            classes.append(int(self.module(pixels[None])[0].argmax()))
        batch["class"] = numpy.array(classes)
        batch["process"] = numpy.array([f"{socket.gethostname()}:{os.getpid()}"] * len(classes))
        del batch["image"]
        return batch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the .pte file, at the same path on all machines")
    parser.add_argument("images", help="a folder of images of the size that the program takes")
    parser.add_argument("predictions", help="the folder to write")
    parser.add_argument("--actors", type=int, default=2, help="processes, on all machines together")
    parser.add_argument("--threads", type=int, default=1, help="threads of each, which is how many CPUs Ray counts for it")
    parser.add_argument("--batch", type=int, default=32, help="images that an actor takes at a time")
    arguments = parser.parse_args()
    ray.init(log_to_driver=False)
    predictions = os.path.abspath(arguments.predictions)
    # Reading and writing are little work, and must not wait for CPUs that actors have.
    ray.data.read_images(
        os.path.abspath(arguments.images),
        include_paths=True,
        file_extensions=["png", "jpg"],
        override_num_blocks=4 * arguments.actors,
        ray_remote_args={"num_cpus": 0},
    ).map_batches(
        Classifier,
        fn_constructor_args=(os.path.abspath(arguments.program), arguments.threads),
        batch_size=arguments.batch,
        compute=ray.data.ActorPoolStrategy(size=arguments.actors),
        num_cpus=arguments.threads,
    ).write_parquet(predictions, ray_remote_args={"num_cpus": 0})
    table = pyarrow.dataset.dataset(predictions, exclude_invalid_files=True).to_table()
    processes = len(set(table["process"].to_pylist()))
    print(f"{table.num_rows} images, by {processes} processes")


if __name__ == "__main__":
    main()
