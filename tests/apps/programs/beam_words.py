"""Apache Beam's FnApiRunner with two worker processes, which it speaks to over gRPC: counts words and prints them."""

import glob
import logging
import tempfile

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from watched import wait_until_seen

logging.disable(logging.WARNING)
TEXT = ["a stable property that holds", "still holds", "a property that held"] * 20


def split(line):
    wait_until_seen()
    return line.split()


def main():
    options = PipelineOptions(["--runner=FnApiRunner", "--direct_running_mode=multi_processing", "--direct_num_workers=2"])
    with tempfile.TemporaryDirectory() as folder:
        with beam.Pipeline(options=options) as pipeline:
            lines = pipeline | beam.Create(TEXT) | beam.Reshuffle()
            counts = lines | beam.FlatMap(split) | beam.combiners.Count.PerElement()
            counts | beam.Map(str) | beam.io.WriteToText(f"{folder}/words")
        found = []
        for path in glob.glob(f"{folder}/words*"):
            with open(path) as part:
                found += part.read().split("\n")
    print("RESULT", sorted(filter(None, found)))


if __name__ == "__main__":
    main()
