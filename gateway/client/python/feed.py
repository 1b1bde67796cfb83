# Publishes a follow and prints the feed. docs/clients.md runs it.
import os
import sys
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "gen"))

import grpc
from skein.v1 import event_pb2, event_service_pb2, event_service_pb2_grpc, feed_service_pb2, feed_service_pb2_grpc

channel = grpc.insecure_channel(os.environ.get("SKEIN_GRPC", "127.0.0.1:7411"))
events = event_service_pb2_grpc.EventServiceStub(channel)
feed = feed_service_pb2_grpc.FeedServiceStub(channel)

# A fact. The answer comes when it is on disk, and has a position: a read with this position sees the fact.
follow = event_pb2.Event(event_id=str(uuid.uuid4()), user_followed=event_pb2.UserFollowed(user_id="py", target_user_id="greta"))
position = events.Publish(event_service_pb2.PublishRequest(events=[follow]), timeout=30).position

# The feed, page by page.
request = feed_service_pb2.ReadFeedRequest(reader_id="py", page_size=2, at_least=position)
while True:
    page = feed.ReadFeed(request, timeout=30)
    for e in page.entries:
        print(f"python: {e.owner_id}/{e.board_id}: {e.pin_id}")
    if not page.next_page_token:
        break
    request.page_token = page.next_page_token
