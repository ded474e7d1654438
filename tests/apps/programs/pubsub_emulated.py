"""A google-cloud-pubsub publisher and subscriber against an emulated server whose streams break. Prints what arrived."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import pubsub_v1
from google.pubsub_v1 import types
from watched import wait_until_seen

MESSAGES = 60
TOPIC, SUBSCRIPTION = "projects/p/topics/t", "projects/p/subscriptions/s"


class Emulator:
    """Keeps what is published; hands it out over streams, each of which breaks after ten messages."""

    def __init__(self):
        self.changed = threading.Condition()
        self.kept, self.published, self.streams = [], 0, 0

    def publish(self, request, context):
        with self.changed:
            ids = []
            for message in request.messages:
                self.published += 1
                message.message_id = str(self.published)
                self.kept.append(message)
                ids.append(message.message_id)
            self.changed.notify_all()
        return types.PublishResponse(message_ids=ids)

    def pull(self, requests, context):
        next(requests)
        threading.Thread(target=lambda: list(requests), daemon=True).start()
        self.streams += 1
        sent = 0
        while context.is_active():
            with self.changed:
                self.changed.wait_for(lambda: self.kept, 0.2)
                taken, self.kept = self.kept[:5], self.kept[5:]
            if taken:
                sent += len(taken)
                yield types.StreamingPullResponse(
                    received_messages=[types.ReceivedMessage(ack_id=one.message_id, message=one) for one in taken]
                )
            if sent >= 10:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the stream breaks")


def plain(behaviour, kind, request):
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(behaviour, request.deserialize, lambda reply: type(reply).serialize(reply))


def main():
    emulator = Emulator()
    server = grpc.server(ThreadPoolExecutor(10))
    empty = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
    publisher = {"Publish": plain(emulator.publish, "unary_unary", types.PublishRequest)}
    subscriber = {
        "StreamingPull": plain(emulator.pull, "stream_stream", types.StreamingPullRequest),
        "Acknowledge": empty,
        "ModifyAckDeadline": empty,
    }
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("google.pubsub.v1.Publisher", publisher),
            grpc.method_handlers_generic_handler("google.pubsub.v1.Subscriber", subscriber),
        )
    )
    os.environ["PUBSUB_EMULATOR_HOST"] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    got, all_here = set(), threading.Event()

    def take(message):
        got.add(message.data)
        message.ack()
        if len(got) == MESSAGES:
            all_here.set()

    options = {"credentials": AnonymousCredentials(), "client_options": ClientOptions()}
    subscriptions = pubsub_v1.SubscriberClient(**options)
    pulling = subscriptions.subscribe(SUBSCRIPTION, take)
    topics = pubsub_v1.PublisherClient(**options)
    futures = [topics.publish(TOPIC, b"message %d" % number) for number in range(MESSAGES)]
    print("RESULT published", len({future.result(30) for future in futures}))
    print("RESULT received", all_here.wait(60), len(got), "over several streams:", emulator.streams > 2)
    wait_until_seen()
    pulling.cancel()
    try:
        pulling.result(30)
    except Exception as error:
        print("RESULT ended with", type(error).__name__)
    else:
        print("RESULT ended")
    subscriptions.close()
    topics.stop()
    server.stop(None).wait()


if __name__ == "__main__":
    main()
