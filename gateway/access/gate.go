package access

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Options say by what callers are known.
type Options struct {
	// Tokens is the token file; empty means there is none.
	Tokens string
	// JWKS is the file with the public keys of the issuer of JWTs; empty means there are no JWTs.
	JWKS string
	// Issuer is the "iss" that a JWT must have, Audience what its "aud" must contain. Both are required with JWKS.
	Issuer, Audience string
	// Logger gets a line when files change. Default: nothing is logged.
	Logger *slog.Logger
}

// Gate identifies callers. Its methods are safe for concurrent use.
type Gate struct {
	tokens *reloader[tokens] // may be nil
	keys   *reloader[keys]   // may be nil
	issuer issuer
}

// Open reads the files. They are read again when they change.
func Open(o Options) (*Gate, error) {
	if o.Tokens == "" && o.JWKS == "" {
		return nil, errors.New("access: neither a token file nor keys for JWTs")
	}
	if o.JWKS != "" && (o.Issuer == "" || o.Audience == "") {
		return nil, errors.New("access: keys for JWTs need an issuer and an audience")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	g := &Gate{issuer: issuer{o.Issuer, o.Audience}}
	var err error
	if o.Tokens != "" {
		g.tokens, err = newReloader("tokens", o.Logger, func() (*tokens, error) { return loadTokens(o.Tokens) }, o.Tokens)
		if err != nil {
			return nil, fmt.Errorf("the token file: %w", err)
		}
	}
	if o.JWKS != "" {
		if g.keys, err = newReloader("keys", o.Logger, func() (*keys, error) { return loadKeys(o.JWKS) }, o.JWKS); err != nil {
			return nil, fmt.Errorf("the JWKS file: %w", err)
		}
	}
	return g, nil
}

// Stale reports of each kind of file whether it has changed and could not be read, so that the previous one stays in force.
func (g *Gate) Stale(now time.Time) map[string]bool {
	stale := map[string]bool{}
	if g.tokens != nil {
		g.tokens.current(now)
		stale[g.tokens.name] = g.tokens.stale.Load()
	}
	if g.keys != nil {
		g.keys.current(now)
		stale[g.keys.name] = g.keys.stale.Load()
	}
	return stale
}

// Authorize identifies the caller at a time, by the header Authorization (empty: there is none) and the verified client
// certificate (nil: there is none). A token that is there decides: a bad one is not made good by a certificate. The
// error is [ErrMissing], [ErrInvalid] or [ErrExpired], and may be told to the client.
func (g *Gate) Authorize(now time.Time, authorization string, cert *x509.Certificate) (Caller, error) {
	if authorization == "" {
		return g.byCertificate(now, cert)
	}
	text, err := bearer(authorization)
	if err != nil {
		return Caller{}, err
	}
	id := tokenHash(sha256.Sum256([]byte(text)))
	if g.tokens != nil {
		if t, ok := g.tokens.current(now).byHash[id]; ok {
			return t.authorize(now, cert)
		}
	}
	if g.keys == nil {
		return Caller{}, ErrInvalid
	}
	all := g.keys.current(now)
	if t, ok := all.verified.find(&id); ok {
		return t.authorize(now, cert)
	}
	caller, expires, err := g.issuer.verify(all, text, now)
	if err != nil {
		return Caller{}, err
	}
	all.verified.add(&id, token{caller: caller, expires: expires}, now)
	return caller, nil
}

func (t *token) authorize(now time.Time, cert *x509.Certificate) (Caller, error) {
	if t.isExpired(now) {
		return Caller{}, ErrExpired
	}
	if t.cert != "" && !hasValidName(cert, now, t.cert) {
		return Caller{}, errCertificate
	}
	return t.caller, nil
}

func (g *Gate) byCertificate(now time.Time, cert *x509.Certificate) (Caller, error) {
	if g.tokens == nil || cert == nil {
		return Caller{}, ErrMissing
	}
	known := g.tokens.current(now).byCert
	for _, name := range certificateNames(cert) {
		if t, ok := known[name]; ok {
			return t.authorize(now, cert)
		}
	}
	return Caller{}, ErrMissing
}

// maxTokenBytes bounds what is hashed and parsed. The longest JWTs of large issuers have some 4 KiB.
const maxTokenBytes = 8 << 10

// bearer returns the token of a header (RFC 6750).
func bearer(authorization string) (string, error) {
	const scheme = "bearer "
	if len(authorization) <= len(scheme) || !strings.EqualFold(authorization[:len(scheme)], scheme) {
		return "", errScheme
	}
	text := authorization[len(scheme):]
	if len(text) > maxTokenBytes {
		return "", errTooLong
	}
	return text, nil
}
