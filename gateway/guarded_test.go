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

// guarded is a world behind TLS and tokens.
type guarded struct {
	*world
	ca *accesstest.Authority
	// jwts signs tokens that are taken.
	jwts *accesstest.JWTs
	// file is the token file, tokens what is known by it: one for each role, and some who are bound
	// to ann.
	file   string
	tokens map[string]string
	lines  map[string]string
	log    *lockedLog
}

// lockedLog is a log of everything, which several goroutines write.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends.
func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is what was written so far.
func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// guardFiles makes what a guard needs.
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
		var err error
		if g.tokens[c.Name], g.lines[c.Name], err = access.NewToken(c, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	old, line, err := access.NewToken(access.Caller{Name: "old", Roles: access.AllRoles}, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	g.tokens["old"], g.lines["old"] = old, line
	g.writeTokens(t)
	return g
}

// writeTokens writes the token file, but for some.
func (g *guarded) writeTokens(t testing.TB, but ...string) {
	t.Helper()
	var text strings.Builder
	for name, line := range g.lines {
		if !slices.Contains(but, name) {
			text.WriteString(line + "\n")
		}
	}
	if err := atomicfile.Write(g.file, []byte(text.String())); err != nil {
		t.Fatal(err)
	}
}

func (g *guarded) options(t testing.TB, o *worldOptions) {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cert, key := g.ca.Server(t.TempDir())
	var err error
	if o.Certificates, err = access.OpenCertificates(access.Files{Cert: cert, Key: key}, o.Logger); err != nil {
		t.Fatal(err)
	}
	o.Authenticator, err = access.Open(access.Options{
		Tokens: g.file, JWKS: g.jwts.File, Issuer: accesstest.Issuer, Audience: accesstest.Audience, Logger: o.Logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	o.clientTLS = &tls.Config{RootCAs: g.ca.Pool, MinVersion: tls.VersionTLS12}
}

func newGuarded(t testing.TB, options ...func(*worldOptions)) *guarded {
	t.Helper()
	g := guardFiles(t)
	g.world = newWorld(t, append([]func(*worldOptions){
		withFeeds, withSeen, withCounters, withNotifications, func(o *worldOptions) { g.options(t, o); o.Operator = idle{} },
	}, options...)...)
	return g
}

// idle is an operator that has nothing to do.
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

// bearer has every request carry a token; none for an empty one.
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

// as has the clients of the world carry a token.
func (g *guarded) as(token string, options ...connect.ClientOption) *world {
	w := *g.world
	w.http = &http.Client{Transport: bearer{token, g.http.Transport}}
	w.connect(options...)
	return &w
}
