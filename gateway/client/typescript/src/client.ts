import { type DescMessage, type MessageInitShape, type MessageShape, create } from "@bufbuild/protobuf";
import { type CallOptions, type Client, type Transport, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { AdminService } from "./gen/skein/v1/admin_service_pb.js";
import { CounterService } from "./gen/skein/v1/counter_service_pb.js";
import { EventService, type PublishResponse, WatchRequestSchema, type WatchResponse } from "./gen/skein/v1/event_service_pb.js";
import { FeedService, WatchFeedRequestSchema, type WatchFeedResponse } from "./gen/skein/v1/feed_service_pb.js";
import { GraphService, ScanFollowersRequestSchema, type ScanFollowersResponse } from "./gen/skein/v1/graph_service_pb.js";
import { SeenService } from "./gen/skein/v1/seen_service_pb.js";
import { type Entry, type Listed, type Paged, pages } from "./pages.js";
import { type EventInit, type PublishOptions, publish } from "./publish.js";
import { Session } from "./session.js";
import { type StreamOptions, type WatchOptions, resumed } from "./streams.js";

export interface SkeinOptions {
  /** Where the service is: "http://127.0.0.1:7411". Calls are made with fetch, as Connect with JSON. */
  baseUrl?: string;
  /** Makes the calls in place of fetch: createGrpcTransport of @connectrpc/connect-node, for example. */
  transport?: Transport;
  /** Says who calls, where the service wants to know; a function is asked before each call. Give the service an https URL. */
  token?: string | (() => string | Promise<string>);
  /** The deadline of calls that have none, in milliseconds. Default: that of `transport`, or 30 000. Streams have none. */
  timeoutMs?: number;
}

/**
 * The client of a skein service. Its fields are the generated clients of the services, and all its calls are one session:
 * they read their own writes. A backend that serves many users should give each of them a session: see inSession.
 */
export class Skein {
  readonly events: Client<typeof EventService>;
  readonly graph: Client<typeof GraphService>;
  readonly feed: Client<typeof FeedService>;
  readonly seen: Client<typeof SeenService>;
  readonly counters: Client<typeof CounterService>;
  readonly admin: Client<typeof AdminService>;

  readonly #base: Transport;
  readonly #transport: Transport;

  constructor(
    options: SkeinOptions,
    readonly session: Session = new Session(),
  ) {
    this.#base = baseTransport(options);
    this.#transport = session.wrap(this.#base);
    this.events = createClient(EventService, this.#transport);
    this.graph = createClient(GraphService, this.#transport);
    this.feed = createClient(FeedService, this.#transport);
    this.seen = createClient(SeenService, this.#transport);
    this.counters = createClient(CounterService, this.#transport);
    this.admin = createClient(AdminService, this.#transport);
  }

  /** Returns a client of the same service, over the same connections, with a session of its own. */
  inSession(session: Session = new Session()): Skein {
    return new Skein({ transport: this.#base }, session);
  }

  /**
   * Appends facts to the log, and returns when they are on disk. It gives ids to events that have none, and tries again
   * with the same ids where the service may not have the events, so that no event counts twice. A caller that may publish
   * the same events again itself makes them with event(), which gives them their ids.
   */
  publish(events: EventInit[], options?: PublishOptions): Promise<PublishResponse> {
    return publish(this.events, events, options);
  }

  /** Reads the pages of a list: pages(GraphService.method.listFollowers, { userId: "ann" }). */
  pages<I extends DescMessage, O extends DescMessage>(
    method: Paged<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    return pages<I, O>(this.#transport, method, request, options);
  }

  /** Reads the entries of a list, page by page: each(FeedService.method.readFeed, { readerId: "ann" }). */
  async *each<I extends DescMessage, O extends DescMessage>(
    method: Listed<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions,
  ): AsyncGenerator<Entry<O>, void, undefined> {
    for await (const page of pages<I, O>(this.#transport, method, request, options)) {
      yield* (page as unknown as { entries: Entry<O>[] }).entries;
    }
  }

  /**
   * Follows the log. Where the stream breaks it continues after the last message: nothing is left out, nothing comes twice.
   * To continue in another process, keep the position of the last message and pass it as `after`.
   */
  watch(request: MessageInitShape<typeof WatchRequestSchema> = {}, options?: WatchOptions): AsyncGenerator<WatchResponse, void, undefined> {
    const first = create(WatchRequestSchema, request);
    return resumed<WatchResponse>(
      {
        open: (last, signal) => this.events.watch({ ...first, after: last?.position ?? first.after }, { signal }),
        ends: false,
      },
      { silenceMs: 20_000, ...options },
    );
  }

  /**
   * Follows how many entries of a feed are above an earlier page. It begins with the present number, also where the stream breaks and is
   * continued: after the last change the last message has the final number.
   */
  watchFeed(
    request: MessageInitShape<typeof WatchFeedRequestSchema>,
    options?: WatchOptions,
  ): AsyncGenerator<WatchFeedResponse, void, undefined> {
    const first = create(WatchFeedRequestSchema, request);
    return resumed<WatchFeedResponse>(
      { open: (_, signal) => this.feed.watchFeed(first, { signal }), ends: false },
      { silenceMs: 90_000, ...options },
    );
  }

  /** Reads all followers of a user or board. Where the stream breaks it continues after the last message. */
  scanFollowers(
    request: MessageInitShape<typeof ScanFollowersRequestSchema>,
    options?: StreamOptions,
  ): AsyncGenerator<ScanFollowersResponse, void, undefined> {
    const first = create(ScanFollowersRequestSchema, request);
    return resumed<ScanFollowersResponse>(
      {
        open: (last, signal) => this.graph.scanFollowers({ ...first, resumeToken: last?.resumeToken ?? first.resumeToken }, { signal }),
        ends: true,
      },
      options,
    );
  }
}

/** Returns the transport of the options, with token and deadline in every call. */
function baseTransport({ baseUrl, transport, token, timeoutMs = transport ? undefined : 30_000 }: SkeinOptions): Transport {
  if ((baseUrl === undefined) === (transport === undefined)) throw new TypeError("give baseUrl or transport, one of the two");
  const next = transport ?? createConnectTransport({ baseUrl: baseUrl! });
  const authorized = async (header: HeadersInit | undefined): Promise<Headers> => {
    const headers = new Headers(header);
    const bearer = typeof token === "function" ? await token() : token;
    if (bearer) headers.set("Authorization", `Bearer ${bearer}`);
    return headers;
  };
  return {
    unary: async (method, signal, ms, header, input, values) =>
      next.unary(method, signal, ms ?? timeoutMs, await authorized(header), input, values),
    stream: async (method, signal, ms, header, input, values) =>
      next.stream(method, signal, ms, await authorized(header), input, values),
  };
}
