// Publishes a follow and prints the feed. docs/clients.md runs it.
import com.skein.v1.*;
import io.grpc.ManagedChannel;
import io.grpc.netty.NettyChannelBuilder;
import java.util.UUID;

public final class Feed {
  public static void main(String[] args) {
    String at = System.getenv().getOrDefault("SKEIN_GRPC", "127.0.0.1:7411");
    ManagedChannel channel = NettyChannelBuilder.forTarget(at).usePlaintext().build();
    EventServiceGrpc.EventServiceBlockingStub events = EventServiceGrpc.newBlockingStub(channel);
    FeedServiceGrpc.FeedServiceBlockingStub feed = FeedServiceGrpc.newBlockingStub(channel);

    // A fact. The answer comes when it is on disk, and has a position: a read with this position sees the fact.
    Event follow = Event.newBuilder().setEventId(UUID.randomUUID().toString())
        .setUserFollowed(UserFollowed.newBuilder().setUserId("java").setTargetUserId("greta")).build();
    String position = events.publish(PublishRequest.newBuilder().addEvents(follow).build()).getPosition();

    // The feed, page by page.
    ReadFeedRequest.Builder request = ReadFeedRequest.newBuilder().setReaderId("java").setPageSize(2).setAtLeast(position);
    ReadFeedResponse page;
    do {
      page = feed.readFeed(request.build());
      page.getEntriesList().forEach(e -> System.out.println("java: " + e.getOwnerId() + "/" + e.getBoardId() + ": " + e.getPinId()));
      request.setPageToken(page.getNextPageToken());
    } while (!page.getNextPageToken().isEmpty());
    channel.shutdown();
  }
}
