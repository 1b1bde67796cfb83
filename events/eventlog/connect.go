package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/embedded"
)

const (
	defaultConnectTimeout = 30 * time.Second
	// dialTimeout bounds one attempt to reach one server.
	dialTimeout = 5 * time.Second
	// firstReconnect and lastReconnect bound the pause before the servers are tried again, of which a random half is taken off. The
	// first pause is short because most failures concern one connection, and the server is still there.
	firstReconnect = 4 * time.Millisecond
	lastReconnect  = time.Second
	// pingInterval and maxPings let the client notice in about 15 s that a server vanished without closing the connection. That
	// must be shorter than retryFor, or publishers would give up on an envelope before they try another server.
	pingInterval = 5 * time.Second
	maxPings     = 2
	// requestTimeout bounds one question to the server. A frozen server gives no answer.
	requestTimeout = 5 * time.Second
	// firstAsk bounds the first attempt of a request that may be repeated. Each attempt may take twice as long as the one before,
	// up to requestTimeout.
	firstAsk = requestTimeout / 8
)

// link is the connection to the server and what is known of its state.
type link struct {
	nc *nats.Conn
	js jetstream.JetStream

	mu      sync.Mutex
	now     linkState
	pass    context.CancelFunc // ends now.ctx
	checked uint64             // the connection (linkState.n) on which the log was last found to be the one opened

	questions []*question // that may be refused by an error of the connection
}

// linkState is the state of a connection at one time.
type linkState struct {
	up bool
	// n counts the connections made: two states with the same n and up saw the same connection.
	n uint64
	// ctx ends when the connection is lost or made again.
	ctx context.Context //nolint:containedctx // it is the signal, not a scope: who waits for a change selects on it
}

// validExternal rejects settings that no retry could make work, so that a mistake is reported at once and not after the connect
// timeout.
func (cfg Config) validExternal() error {
	for server := range strings.SplitSeq(cfg.URL, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		if u, err := url.Parse(server); err != nil || u.Hostname() == "" {
			return fmt.Errorf("eventlog: the URL of the log's server is malformed: %q", cfg.URL)
		}
	}
	if strings.ContainsAny(cfg.InboxPrefix, "*> \t\r\n") || strings.HasPrefix(cfg.InboxPrefix, ".") ||
		strings.HasSuffix(cfg.InboxPrefix, ".") || strings.Contains(cfg.InboxPrefix, "..") {
		return fmt.Errorf("eventlog: the inbox prefix is malformed: %q", cfg.InboxPrefix)
	}
	for _, file := range []string{cfg.CredsFile, cfg.TLS.CertFile, cfg.TLS.KeyFile, cfg.TLS.CAFile} {
		if file == "" {
			continue
		}
		if _, err := os.ReadFile(file); err != nil {
			return fmt.Errorf("eventlog: %w", err)
		}
	}
	return nil
}

// servers returns the external servers without the user names, passwords and tokens in their URLs, for log lines.
func (cfg Config) servers() string {
	var names []string
	for server := range strings.SplitSeq(cfg.URL, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		if u, err := url.Parse(server); err == nil {
			names = append(names, u.Scheme+"://"+u.Host)
		}
	}
	return strings.Join(names, ",")
}

// connect connects to the embedded server, or to an external one, for which it retries until the context or the
// connect timeout ends.
func connect(ctx context.Context, cfg Config, server *embedded.Server, logger *slog.Logger) (*link, error) {
	c := &link{now: linkState{up: true, n: 1}}
	c.now.ctx, c.pass = context.WithCancel(context.Background()) //nolint:fatcontext // replaced, not nested
	opts := []nats.Option{
		nats.Name("skein"),
		nats.Timeout(dialTimeout),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		// An envelope kept by the client while it has no connection would be appended long after its caller was
		// told that the outcome is unknown, perhaps after the dedupe window. So nothing is kept.
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.turn(false)
			if err != nil {
				logger.Warn("log: connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.turn(true)
			logger.Warn("log: connected again", "url", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// NATS reports a permission violation only here, never as the answer to a request.
			if denied := c.forbid(err); denied != nil {
				err = denied
			}
			logger.Warn("log: connection error", "error", err)
		}),
	}
	if server != nil {
		opts = append(opts, nats.InProcessServer(server))
	}
	if cfg.Socket != "" {
		opts = append(opts, nats.SetCustomDialer(socketDialer(cfg.Socket)))
	}
	if cfg.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(cfg.InboxPrefix))
	}
	if cfg.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(cfg.CredsFile))
	}
	if cfg.TLS.CertFile != "" || cfg.TLS.KeyFile != "" {
		opts = append(opts, nats.ClientCert(cfg.TLS.CertFile, cfg.TLS.KeyFile))
	}
	if cfg.TLS.CAFile != "" {
		opts = append(opts, nats.RootCAs(cfg.TLS.CAFile))
	}
	nc, err := dial(ctx, cfg, opts, logger)
	if err != nil {
		return nil, err
	}
	c.nc = nc
	if c.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout)); err != nil {
		nc.Close()
		return nil, fmt.Errorf("eventlog: %w", err)
	}
	if limit := nc.MaxPayload(); limit < maxMsgSize {
		nc.Close()
		return nil, fmt.Errorf("%w: the server takes messages of at most %d bytes: set max_payload to at least %d",
			events.ErrStreamMismatch, limit, maxMsgSize)
	}
	return c, nil
}

// socketURL stands for a server that is reached by a socket. NATS wants a URL, and looks up no name for an address.
const socketURL = "nats://127.0.0.1"

// socketDialer connects to a Unix socket, whatever the address.
type socketDialer string

// Dial connects to the socket. It is part of nats.CustomDialer.
func (s socketDialer) Dial(string, string) (net.Conn, error) {
	return net.DialTimeout("unix", string(s), dialTimeout)
}

// sayUnreachable is the interval between log lines that say that no server can be reached.
const sayUnreachable = 10 * time.Second

func dial(ctx context.Context, cfg Config, opts []nats.Option, logger *slog.Logger) (*nats.Conn, error) {
	deadline := time.NewTimer(cfg.connectTimeout())
	defer deadline.Stop()
	tries := 5 // the pause is long enough for a server to start
	var said time.Time
	for {
		nc, err := nats.Connect(cfg.URL, opts...)
		if err == nil {
			return nc, nil
		}
		err = fmt.Errorf("%w: connect to the log: %w", events.ErrLogUnavailable, err)
		if !retryDial(err) {
			return nil, err
		}
		if time.Since(said) >= sayUnreachable {
			said = time.Now()
			logger.Warn("log: the server cannot be reached; it is tried again", "servers", cfg.servers(), "error", err,
				"give_up_after", cfg.connectTimeout())
		}
		tries++
		pause := time.NewTimer(reconnectDelay(tries))
		select {
		case <-pause.C:
			continue
		case <-deadline.C:
		case <-ctx.Done():
			err = errors.Join(ctx.Err(), err)
		}
		pause.Stop()
		return nil, err
	}
}

// reconnectDelay returns the pause after the servers were tried so many times in vain.
func reconnectDelay(tries int) time.Duration {
	d := min(firstReconnect<<min(2*(tries-1), 16), lastReconnect)
	return d/2 + rand.N(d/2)
}

// retryDial tells an error that may pass from one of the configuration.
func retryDial(err error) bool {
	for _, fixed := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrInvalidArg,
	} {
		if errors.Is(err, fixed) {
			return false
		}
	}
	var unreachable net.Error
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.As(err, &unreachable)
}

// turn notes that the connection went down or came up again.
func (c *link) turn(up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass()
	c.now.ctx, c.pass = context.WithCancel(context.Background()) //nolint:fatcontext // replaced, not nested
	c.now.up = up
	if up {
		c.now.n++
	}
}

func (c *link) state() linkState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// await waits until the connection is up.
func (c *link) await(ctx context.Context) (linkState, error) {
	for {
		s := c.state()
		if s.up {
			return s, nil
		}
		if c.nc.IsClosed() {
			return s, events.ErrClosed
		}
		select {
		case <-s.ctx.Done():
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}

// during makes one request on one connection, within a timeout. It also ends when that connection is lost, or when the server
// forbids one of the subjects: in neither case does an answer come, and the client library would wait for it until the timeout.
func (c *link) during(
	ctx context.Context, s linkState, timeout time.Duration, ask func(context.Context) error, subjects ...string,
) error {
	heeded, stop := c.heed(ctx, subjects...)
	defer stop()
	inner, cancel := context.WithTimeout(heeded, timeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)() //nolint:contextcheck // the call ends with either
	err := ask(inner)
	switch denied := forbidden(heeded, err); {
	case ctx.Err() != nil:
	case errors.Is(denied, events.ErrForbidden):
		return denied
	case errors.Is(err, context.Canceled):
		return nats.ErrDisconnected
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer for %v", nats.ErrTimeout, timeout)
	}
	return err
}

func (c *link) close() {
	c.nc.Close()
	c.turn(false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pass()
}

// verified reports whether the log was checked on this connection.
func (c *link) verified(s linkState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checked == s.n
}

func (c *link) verify(s linkState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked = s.n
}
