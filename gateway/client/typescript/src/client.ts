import { type DescMessage, type MessageInitShape, type MessageShape, create } from "@bufbuild/protobuf";
import { type CallOptions, type Client, type Transport, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { AdminService } from "./gen/skein/v1/admin_service_pb.js";
import { CounterService } from "./gen/skein/v1/counter_service_pb.js";
import { EventService, type PublishResponse, WatchRequestSchema, type WatchResponse } from "./gen/skein/v1/event_service_pb.js";
import { FeedService, WatchFeedRequestSchema, type WatchFeedResponse } from "./gen/skein/v1/feed_service_pb.js";
import { GraphService, ScanFollowersRequestSchema, type ScanFollowersResponse } from "./gen/skein/v1/graph_service_pb.js";
import { NotificationService, WatchNotificationsRequestSchema, type WatchNotificationsResponse } from "./gen/skein/v1/notification_service_pb.js";
import { SeenService } from "./gen/skein/v1/seen_service_pb.js";
import { addToJSON } from "./json.js";
import { explainNetworkError } from "./network.js";
import { type Entry, type Listed, type Paged, pages, readEntries } from "./pages.js";
import { type EventInit, type PublishOptions, publish } from "./publish.js";
import { Session } from "./session.js";
import { type StreamOptions, type WatchOptions, resumed } from "./streams.js";
import { convertDates } from "./times.js";

export interface SkeinOptions {
  /** Where the service is: "http://127.0.0.1:7411". Calls are made with fetch, by the Connect protocol. */
  baseUrl?: string;
  /**
   * Makes the calls of `baseUrl` with JSON, which people can read in the tools of a browser or in a proxy. Otherwise they are binary
   * protobuf, which is smaller and takes the service less time.
   */
  json?: boolean;
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
  readonly notifications: Client<typeof NotificationService>;
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
    this.notifications = createClient(NotificationService, this.#transport);
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
  each<I extends DescMessage, O extends DescMessage>(
    method: Listed<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions,
  ): AsyncGenerator<Entry<O>, void, undefined> {
    return readEntries<I, O>(this.#transport, method, request, options);
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
      { idleTimeoutMs: 20_000, ...options },
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
      { idleTimeoutMs: 90_000, ...options },
    );
  }

  /**
   * Follows how many groups of notifications a user has not seen. It begins with the present number, also where the stream breaks and is
   * continued: after the last change the last message has the final number.
   */
  watchNotifications(
    request: MessageInitShape<typeof WatchNotificationsRequestSchema>,
    options?: WatchOptions,
  ): AsyncGenerator<WatchNotificationsResponse, void, undefined> {
    const first = create(WatchNotificationsRequestSchema, request);
    return resumed<WatchNotificationsResponse>(
      {
        open: (last, signal) => this.notifications.watchNotifications({ ...first, atLeast: last?.position ?? first.atLeast }, { signal }),
        ends: false,
      },
      { idleTimeoutMs: 90_000, ...options },
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

/** Returns the transport of the options. It adds token and deadline to every call, and what messages and errors lack to be usable. */
function baseTransport({ baseUrl, json = false, transport, token, timeoutMs = transport ? undefined : 30_000 }: SkeinOptions): Transport {
  if ((baseUrl === undefined) === (transport === undefined)) throw new TypeError("give baseUrl or transport, one of the two");
  if (transport !== undefined && json) throw new TypeError("json belongs to baseUrl: a transport has its own format");
  if (baseUrl !== undefined) checkBaseUrl(baseUrl);
  const next = transport ?? createConnectTransport({ baseUrl: baseUrl!, useBinaryFormat: !json });
  const authorized = async (header: HeadersInit | undefined): Promise<Headers> => {
    const headers = new Headers(header);
    const bearer = typeof token === "function" ? await token() : token;
    if (bearer) headers.set("Authorization", `Bearer ${bearer}`);
    return headers;
  };
  return {
    unary: async (method, signal, ms, header, input, values) => {
      const headers = await authorized(header);
      const request = convertDates(method.input, input);
      try {
        const response = await next.unary(method, signal, ms ?? timeoutMs, headers, request, values);
        addToJSON(method.output, response.message);
        return response;
      } catch (err) {
        throw explainNetworkError(err, baseUrl);
      }
    },
    stream: async (method, signal, ms, header, input, values) => {
      const headers = await authorized(header);
      try {
        const response = await next.stream(method, signal, ms, headers, input, values);
        return { ...response, message: completeMessages(method.output, response.message, baseUrl) };
      } catch (err) {
        throw explainNetworkError(err, baseUrl);
      }
    },
  };
}

/** Adds to the messages of a stream, and to the error that ends it, what those of single calls have. */
async function* completeMessages<O extends DescMessage>(
  schema: O,
  messages: AsyncIterable<MessageShape<O>>,
  baseUrl: string | undefined,
): AsyncIterable<MessageShape<O>> {
  try {
    for await (const message of messages) yield addToJSON(schema, message);
  } catch (err) {
    throw explainNetworkError(err, baseUrl);
  }
}

/** Refuses what fetch would refuse at the first call, without naming it. */
function checkBaseUrl(baseUrl: string): void {
  const page = (globalThis as { location?: { href: string } }).location?.href; // in a browser the address may be relative to the page
  const url = URL.canParse(baseUrl, page) ? new URL(baseUrl, page) : undefined;
  if (url?.protocol === "http:" || url?.protocol === "https:") return;
  throw new TypeError(`baseUrl must begin with http:// or https://, as "http://127.0.0.1:7411" does; it is ${JSON.stringify(baseUrl)}`);
}
