package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events/atomicfile"
	"github.com/skein-feed/skein/gateway/access"
	"github.com/skein-feed/skein/gateway/access/accesstest"
	"github.com/skein-feed/skein/gateway/operator"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// guarded is a world that is reached by TLS and demands tokens.
type guarded struct {
	*world
	ca *accesstest.Authority
	// jwts signs JWTs that the server accepts.
	jwts *accesstest.JWTs
	// file is the path of the token file.
	file string
	// tokens are the tokens in the file by the names of their callers: one for each role, one for
	// all roles, one that is bound to ann, and an expired one.
	tokens map[string]string
	// lines are the lines of the file by the names of callers.
	lines map[string]string
	// log has everything that the server logs.
	log *lockedLog
}

// lockedLog is a buffer to which several goroutines write.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write is part of io.Writer.
func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was written so far.
func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// guardFiles writes the files that a server with authentication needs. The world does not exist
// yet.
func guardFiles(t testing.TB) *guarded {
	t.Helper()
	g := &guarded{
		ca: accesstest.NewAuthority(t), jwts: accesstest.NewJWTs(t, "one"), file: filepath.Join(t.TempDir(), "tokens"),
		tokens: map[string]string{}, lines: map[string]string{}, log: &lockedLog{},
	}
	for _, c := range []access.Caller{
		{Name: "publisher", Roles: access.Publish},
		{Name: "reader", Roles: access.Read},
		{Name: "offline", Roles: access.Offline},
		{Name: "admin", Roles: access.Admin},
		{Name: "all", Roles: access.AllRoles},
		{Name: "ann", Roles: access.AllRoles, User: "ann"},
	} {
		g.makeToken(t, c, time.Time{})
	}
	g.makeToken(t, access.Caller{Name: "old", Roles: access.AllRoles}, time.Now().Add(-time.Hour))
	g.writeTokens(t)
	return g
}

// makeToken makes a token for a caller, without writing it to the file. The zero time means that
// the token does not expire.
func (g *guarded) makeToken(t testing.TB, caller access.Caller, expiry time.Time) {
	t.Helper()
	token, line, err := access.NewToken(caller, expiry)
	if err != nil {
		t.Fatal(err)
	}
	g.tokens[caller.Name] = token
	g.lines[caller.Name] = line
}

// writeTokens writes the token file without the tokens of some callers.
func (g *guarded) writeTokens(t testing.TB, excluded ...string) {
	t.Helper()
	var text strings.Builder
	for name, line := range g.lines {
		if !slices.Contains(excluded, name) {
			text.WriteString(line + "\n")
		}
	}
	if err := atomicfile.Write(g.file, []byte(text.String())); err != nil {
		t.Fatal(err)
	}
}

// options sets the options of a world that demands the tokens.
func (g *guarded) options(t testing.TB, o *worldOptions) {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cert, key := g.ca.Server(t.TempDir())
	var err error
	o.Certificates, err = access.OpenCertificates(access.Files{Cert: cert, Key: key}, o.Logger)
	if err != nil {
		t.Fatal(err)
	}
	o.clientTLS = &tls.Config{RootCAs: g.ca.Pool, MinVersion: tls.VersionTLS12}

	o.Authenticator, err = access.Open(access.Options{
		Tokens: g.file, JWKS: g.jwts.File, Issuer: accesstest.Issuer, Audience: accesstest.Audience, Logger: o.Logger,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// newGuarded returns a guarded world with all stores. Its own clients send no token.
func newGuarded(t testing.TB, options ...func(*worldOptions)) *guarded {
	t.Helper()
	g := guardFiles(t)
	guardedOptions := []func(*worldOptions){
		withFeeds, withSeen, withCounters, withNotifications,
		func(o *worldOptions) {
			g.options(t, o)
			o.Operator = idle{}
		},
	}
	g.world = newWorld(t, append(guardedOptions, options...)...)
	return g
}

// idle is an operator that refuses to start operations, and knows none.
type idle struct{}

// Start is part of Operator.
func (idle) Start(context.Context, operator.OperationRequest) (*skeinv1.Operation, error) {
	return nil, &operator.Refusal{Cause: operator.ErrNotPossible, Text: "there is nothing to do"}
}

// Get is part of Operator.
func (idle) Get(context.Context, string) (*skeinv1.Operation, error) {
	return nil, operator.ErrUnknownOperation
}

// List is part of Operator.
func (idle) List(context.Context, skeinv1.OperationKind, string, int) ([]*skeinv1.Operation, bool, error) {
	return nil, false, nil
}

// Cancel is part of Operator.
func (idle) Cancel(context.Context, string) (*skeinv1.Operation, error) {
	return nil, operator.ErrUnknownOperation
}

// Watch is part of Operator.
func (idle) Watch(context.Context, string, func(*skeinv1.Operation) error) error {
	return operator.ErrUnknownOperation
}

// bearer adds a token to every request. An empty token adds none.
type bearer struct {
	token string
	next  http.RoundTripper
}

// RoundTrip is part of http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

// as returns a copy of the world whose clients send a token.
func (g *guarded) as(token string, options ...connect.ClientOption) *world {
	w := *g.world
	w.http = &http.Client{Transport: bearer{token, g.http.Transport}}
	w.connect(options...)
	return &w
}
