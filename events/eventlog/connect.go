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
	// dialTimeout limits one attempt to reach one server.
	dialTimeout = 5 * time.Second
	// minReconnectDelay and maxReconnectDelay are the limits of the delay before the client tries
	// the servers again. Up to half of each delay is randomly taken off. The first delay is short
	// because most failures concern one connection only, and the server is still there.
	minReconnectDelay = 4 * time.Millisecond
	maxReconnectDelay = time.Second
	// pingInterval and maxPings let the client notice within about 15 s that a server has vanished
	// without closing the connection. That must be less than retryFor, or a publisher would give up
	// on an envelope before it has tried another server.
	pingInterval = 5 * time.Second
	maxPings     = 2
	// requestTimeout limits one request to the server, because a server that hangs never answers.
	requestTimeout = 5 * time.Second
	// firstRequestTimeout limits the first attempt of a request that may be sent more than once.
	// Each further attempt may take twice as long as the one before, up to requestTimeout.
	firstRequestTimeout = requestTimeout / 8
	// unreachableLogInterval is the time between two log lines that say that no server can be
	// reached.
	unreachableLogInterval = 10 * time.Second
)

// connection is the connection to the server of a log. The NATS client reconnects by itself. A
// connection tracks its state, so that requests end when the connection is lost, and so that the
// log is checked again after a reconnect.
type connection struct {
	nc *nats.Conn
	js jetstream.JetStream

	// mu guards the fields below it.
	mu      sync.Mutex
	current connState
	// endCurrent cancels current.ctx.
	endCurrent context.CancelFunc
	// verifiedConn is the connState.number of the connection on which the log was last found to be
	// the one that was opened.
	verifiedConn uint64
	// pendingRequests are the requests that a permission error of the server may end.
	pendingRequests []*pendingRequest
}

// connState is the state of a connection at one time.
type connState struct {
	up bool
	// number is how many times the client has connected. Two states that are up and have the same
	// number are of the same TCP connection.
	number uint64
	// ctx ends when the connection is lost or made again.
	ctx context.Context //nolint:containedctx // it is the signal, not a scope: who waits for a change selects on it
}

// validateExternal rejects settings of an external server with which no retry could succeed, so
// that Open reports a mistake at once and not after the connect timeout.
func (cfg Config) validateExternal() error {
	for server := range strings.SplitSeq(cfg.URL, ",") {
		if u, err := parseServerURL(server); err != nil || u.Hostname() == "" {
			return fmt.Errorf("eventlog: the URL of the log's server is malformed: %q", cfg.URL)
		}
	}

	prefix := cfg.InboxPrefix
	hasForbiddenCharacter := strings.ContainsAny(prefix, "*> \t\r\n")
	hasEmptyToken := strings.HasPrefix(prefix, ".") || strings.HasSuffix(prefix, ".") || strings.Contains(prefix, "..")
	if hasForbiddenCharacter || hasEmptyToken {
		return fmt.Errorf("eventlog: the inbox prefix is malformed: %q", prefix)
	}

	// The client reads these files only when it connects. Reading them here also finds those that
	// this process may not read.
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

// parseServerURL parses one entry of Config.URL. Like the NATS client, it adds a missing scheme.
func parseServerURL(server string) (*url.URL, error) {
	server = strings.TrimSpace(server)
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	return url.Parse(server)
}

// redactedServers returns the external servers for log lines: without the user names, passwords and
// tokens that their URLs may contain.
func (cfg Config) redactedServers() string {
	var names []string
	for server := range strings.SplitSeq(cfg.URL, ",") {
		if u, err := parseServerURL(server); err == nil {
			names = append(names, u.Scheme+"://"+u.Host)
		}
	}
	return strings.Join(names, ",")
}

// connect connects to the embedded server, or to an external one if server is nil. It retries until
// ctx or the connect timeout ends.
func connect(ctx context.Context, cfg Config, server *embedded.Server, logger *slog.Logger) (*connection, error) {
	c := &connection{current: connState{up: true, number: 1}}
	c.current.ctx, c.endCurrent = context.WithCancel(context.Background()) //nolint:fatcontext // replaced, not nested

	opts := []nats.Option{
		nats.Name("skein"),
		nats.Timeout(dialTimeout),
		// The client must never give up. By default it does after 60 attempts, and when a server
		// rejects its credentials twice, which may happen while credentials are being replaced.
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPings),
		// -1 makes the client buffer nothing while it has no connection. A buffered envelope would
		// be appended long after its caller was told that the outcome is unknown, and perhaps after
		// the dedupe window.
		nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.recordChange(false)
			if err != nil {
				logger.Warn("log: connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.recordChange(true)
			logger.Warn("log: connected again", "url", nc.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			// NATS reports a permission violation only here, never as the answer to a request.
			if denied := c.cancelForbidden(err); denied != nil {
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
	// Without this check, the first large envelope would find out.
	if limit := nc.MaxPayload(); limit < maxMsgSize {
		nc.Close()
		return nil, fmt.Errorf("%w: the server takes messages of at most %d bytes: set max_payload to at least %d",
			events.ErrStreamMismatch, limit, maxMsgSize)
	}
	return c, nil
}

// socketURL stands for a server that is reached by a socket. NATS wants a URL, and looks up no name
// for an address.
const socketURL = "nats://127.0.0.1"

// socketDialer connects to a Unix socket, whatever the address.
type socketDialer string

// Dial connects to the socket. It is part of nats.CustomDialer.
func (s socketDialer) Dial(string, string) (net.Conn, error) {
	return (&net.Dialer{Timeout: dialTimeout}).Dial("unix", string(s))
}

// dial connects to a server. It retries errors that may pass, until ctx or the connect timeout
// ends.
func dial(ctx context.Context, cfg Config, opts []nats.Option, logger *slog.Logger) (*nats.Conn, error) {
	deadline := time.NewTimer(cfg.connectTimeout())
	defer deadline.Stop()

	// The delay grows with the number of attempts. Counting from 5 makes the first delay long
	// enough for a server to start.
	attempts := 5
	var lastLogged time.Time // zero, so that the first failure is logged at once
	for {
		nc, err := nats.Connect(cfg.URL, opts...)
		if err == nil {
			return nc, nil
		}
		err = fmt.Errorf("%w: connect to the log: %w", events.ErrLogUnavailable, err)
		if !isRetryableDialError(err) {
			return nil, err
		}

		if time.Since(lastLogged) >= unreachableLogInterval {
			lastLogged = time.Now()
			logger.Warn("log: the server cannot be reached; it is tried again", "servers", cfg.redactedServers(), "error", err,
				"give_up_after", cfg.connectTimeout())
		}

		attempts++
		pause := time.NewTimer(reconnectDelay(attempts))
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

// reconnectDelay returns the delay after so many failed attempts, at least one.
func reconnectDelay(attempts int) time.Duration {
	delay := min(minReconnectDelay<<min(2*(attempts-1), 16), maxReconnectDelay)
	return delay/2 + rand.N(delay/2)
}

// isRetryableDialError reports whether connecting may succeed later. It is false for errors of the
// configuration.
func isRetryableDialError(err error) bool {
	for _, permanent := range []error{
		nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired,
		nats.ErrSecureConnRequired, nats.ErrSecureConnWanted, nats.ErrInvalidArg,
	} {
		if errors.Is(err, permanent) {
			return false
		}
	}
	var unreachable net.Error
	return errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.As(err, &unreachable)
}

// recordChange records that the connection was lost or made again, and ends the context of the
// state before.
func (c *connection) recordChange(up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endCurrent()
	c.current.ctx, c.endCurrent = context.WithCancel(context.Background()) //nolint:fatcontext // replaced, not nested
	c.current.up = up
	if up {
		c.current.number++
	}
}

// state returns the present state.
func (c *connection) state() connState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// waitUntilUp waits until the connection is up. It fails with [events.ErrClosed] if the connection
// was closed.
func (c *connection) waitUntilUp(ctx context.Context) (connState, error) {
	for {
		state := c.state()
		if state.up {
			return state, nil
		}
		if c.nc.IsClosed() {
			return state, events.ErrClosed
		}

		select {
		case <-state.ctx.Done():
		case <-ctx.Done():
			return state, ctx.Err()
		}
	}
}

// request sends one request on the connection of the given state, and waits for the answer until
// the timeout. It also ends when that connection is lost, and when the server forbids one of the
// subjects. In neither case does an answer arrive, and the NATS client would wait for it until the
// timeout.
func (c *connection) request(
	ctx context.Context, state connState, timeout time.Duration, send func(context.Context) error, subjects ...string,
) error {
	watched, stop := c.watchPermissions(ctx, subjects...)
	defer stop()
	bounded, cancel := context.WithTimeout(watched, timeout)
	defer cancel()
	defer context.AfterFunc(state.ctx, cancel)() //nolint:contextcheck // the call ends with either

	err := send(bounded)
	denied := permissionError(watched, err)
	switch {
	case ctx.Err() != nil:
		return err // the caller has ended the request
	case errors.Is(denied, events.ErrForbidden):
		return denied
	case errors.Is(err, context.Canceled):
		return nats.ErrDisconnected // only the end of state.ctx cancels bounded
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer for %v", nats.ErrTimeout, timeout)
	}
	return err
}

// close closes the connection. Everything that waits for its state ends.
func (c *connection) close() {
	c.nc.Close()
	c.recordChange(false)

	// No further change will end the context of the present state.
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endCurrent()
}

// isVerified reports whether the log was checked on the connection of the given state.
func (c *connection) isVerified(state connState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verifiedConn == state.number
}

// markVerified records that the log was checked on the connection of the given state.
func (c *connection) markVerified(state connState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verifiedConn = state.number
}
