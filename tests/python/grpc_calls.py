"""Makes calls with grpcio, on one channel, and prints what its user sees of each.

Reads from the standard input, and prints, JSON:

    {"target": "127.0.0.1:50051", "calls": [{"method": "Current", "metadata": [["x-api-key", "a"]]}], "config": {...}}
    [{"code": "OK", "message": "", "initial": {...}, "trailing": {...}, "details": {"RetryInfo": {...}}, "responses": 1}]

"config" is a service config (retries); without one grpcio retries nothing. With "together" all calls are begun before any
of them is waited for.
"""

import json
import sys

import grpc
from google.protobuf.json_format import MessageToDict
from google.rpc import error_details_pb2
from grpc_status import rpc_status

SERVICE = "/weather.v1.Weather/"
# Both City and Report begin with a name in field 1.
MESSAGE = b"\x0a\x04Oslo"
# More than a server reads that denies at once.
STREAM = 1000


def start(channel, method, metadata):
    """Begins a call. It has a result, or is iterated over where responses are a stream."""
    path = SERVICE + method
    if method == "Current":
        return channel.unary_unary(path).future(MESSAGE, metadata=metadata)
    if method == "Watch":
        return channel.unary_stream(path)(MESSAGE, metadata=metadata)
    messages = iter([MESSAGE] * STREAM)
    if method == "Record":
        return channel.stream_unary(path).future(messages, metadata=metadata)
    return channel.stream_stream(path)(messages, metadata=metadata)


def known(status):
    """The details of a status, by their name."""
    found = {}
    for detail in status.details if status else []:
        name = detail.type_url.rpartition(".")[2]
        message = getattr(error_details_pb2, name)()
        assert detail.Unpack(message), detail.type_url
        found[name] = MessageToDict(message, preserving_proto_field_name=True)
    return found


def text(metadata):
    """What is neither binary nor different from second to second."""
    return {name: value for name, value in metadata or () if isinstance(value, str) and name != "date"}


def outcome(call, method):
    count = 0
    try:
        count = call.result() is not None if method in ("Current", "Record") else sum(1 for _ in call)
    except grpc.RpcError:
        pass
    return {
        "code": call.code().name,
        "message": call.details(),
        "initial": text(call.initial_metadata()),
        "trailing": text(call.trailing_metadata()),
        # Fails where the details contradict the status.
        "details": known(rpc_status.from_call(call)),
        "responses": int(count),
    }


def main():
    asked = json.load(sys.stdin)
    options = [("grpc.enable_retries", 0)]
    if "config" in asked:
        options = [("grpc.service_config", json.dumps(asked["config"]))]
    with grpc.insecure_channel(asked["target"], options) as channel:
        begun = (
            (start(channel, call["method"], [tuple(pair) for pair in call.get("metadata", [])]), call["method"])
            for call in asked["calls"]
        )
        if asked.get("together"):
            begun = list(begun)
        told = [outcome(call, method) for call, method in begun]
    json.dump(told, sys.stdout)


main()
